"""A runtime whose device is the host's memory: what segments do, without a device to do it on."""

import ctypes
import itertools
import secrets
from contextlib import nullcontext

from telegrad.interop.torch.devices.runtime import HANDLE_BYTES, CudaFailure

__all__ = ["HostRuntime", "Machine"]


class Machine:
    """What processes of one host share: memory and events, by their handles."""

    def __init__(self, room=1 << 30):
        self.room = room
        self.buffers = {}
        self.events = {}
        self.handles = {}
        self.is_reset = False
        self.opened = []
        """Memory that is mapped, once for each that has done so."""


class HostRuntime:
    """One process's; see ``Runtime``. `log` has what was enqueued, in order."""

    def __init__(self, machine, uuid="GPU-1"):
        self.machine = machine
        self.uuid = uuid
        self.log = []
        self.refuses = None
        self._numbers = itertools.count(1)

    def note(self, what, stream=None):
        self.log.append(what)

    def uuids(self):
        return [self.uuid]

    def on(self, device):
        return nullcontext()

    def stream(self, device):
        return 7

    def _check(self, what):
        if self.machine.is_reset:
            raise CudaFailure(f"{what} failed: context is destroyed (709)")

    def allocate(self, nbytes):
        self._check("cudaMalloc")
        if sum(map(len, self.machine.buffers.values())) + nbytes > self.machine.room:
            raise CudaFailure("cudaMalloc failed: out of memory (2)")
        buffer = ctypes.create_string_buffer(nbytes)
        address = ctypes.addressof(buffer)
        self.machine.buffers[address] = buffer
        return address

    def free(self, memory):
        assert memory not in self.machine.opened, "freed while another process maps it"
        del self.machine.buffers[memory]
        self._check("cudaFree")

    def make_event(self):
        number = secrets.randbits(60)
        self.machine.events[number] = 0
        return number

    def destroy_event(self, event):
        del self.machine.events[event]

    def export_memory(self, memory):
        return self._export(memory)

    export_event = export_memory

    def _export(self, value):
        handle = secrets.token_bytes(HANDLE_BYTES)
        self.machine.handles[handle] = value
        return handle

    def open_memory(self, handle):
        if self.refuses is not None:
            raise CudaFailure(self.refuses)
        memory = self.machine.handles[handle]
        self.machine.opened.append(memory)
        return memory

    def size_of(self, memory):
        return len(self.machine.buffers[memory])

    def close_memory(self, memory):
        self.machine.opened.remove(memory)

    def open_event(self, handle):
        return self.machine.handles[handle]

    def close_event(self, event):
        pass

    def copy(self, to, frm, nbytes, stream):
        self._check("cudaMemcpyAsync")
        self.note("copy", stream)
        ctypes.memmove(to, frm, nbytes)

    def record(self, event, stream):
        self._check("cudaEventRecord")
        self.note("record", stream)
        self.machine.events[event] += 1

    def wait(self, stream, event):
        self._check("cudaStreamWaitEvent")
        self.note("wait", stream)

    def synchronize(self, event):
        self._check("cudaEventSynchronize")
        self.note("synchronize")
