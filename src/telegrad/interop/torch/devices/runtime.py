"""CUDA's runtime through ctypes: the few functions for device segments that PyTorch doesn't expose.

PyTorch shares memory of its own allocator only, and by pickle. Segments are allocated outside of
it, so they can be exported whatever the allocator's settings (``expandable_segments``), and their
memory returns to the device when they are freed. Handles are 64 bytes made by the driver, which
opens none in the process that exported it; such a handle is looked up in a table here instead.

Knows nothing of tensors, workers and frames. A failed call raises `CudaFailure` and clears the
runtime's last error, which PyTorch would otherwise report as its own.
"""

import ctypes
import threading
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, Final

import torch

HANDLE_BYTES: Final = 64
_DEVICE_TO_DEVICE: Final = 3
# cudaEventDisableTiming | cudaEventInterprocess: the latter needs the former.
_SHARED_EVENT: Final = 2 | 4
# cudaIpcMemLazyEnablePeerAccess, the only flag there is.
_LAZY_PEER_ACCESS: Final = 1
_NOTHING: Final[AbstractContextManager[Any]] = nullcontext()
# The functions of torch.cuda take twenty times as long.
_current_device: Any = getattr(torch._C, "_cuda_getDevice", None)
_current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)


class CudaFailure(RuntimeError):
    """A function of the runtime failed; the message has its name and the runtime's error."""


class _Handle(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char * HANDLE_BYTES)]


class Runtime:
    """The functions over one loaded library. Pointers, events and streams are integers."""

    def __init__(self, library: Any) -> None:
        self._library = library
        library.cudaGetErrorString.restype = ctypes.c_char_p
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        for name, arguments in {
            "cudaMalloc": [pointer, size],
            "cudaFree": [pointer],
            "cudaIpcGetMemHandle": [pointer, pointer],
            "cudaIpcOpenMemHandle": [pointer, _Handle, ctypes.c_uint],
            "cudaIpcCloseMemHandle": [pointer],
            "cudaEventCreateWithFlags": [pointer, ctypes.c_uint],
            "cudaEventDestroy": [pointer],
            "cudaIpcGetEventHandle": [pointer, pointer],
            "cudaIpcOpenEventHandle": [pointer, _Handle],
            "cudaMemcpyAsync": [pointer, pointer, size, ctypes.c_int, pointer],
            "cudaEventRecord": [pointer, pointer],
            "cudaStreamWaitEvent": [pointer, pointer, ctypes.c_uint],
            "cudaEventSynchronize": [pointer],
        }.items():
            getattr(library, name).argtypes = arguments
        self._copy = library.cudaMemcpyAsync
        self._record = library.cudaEventRecord
        self._wait = library.cudaStreamWaitEvent
        self._lock = threading.Lock()
        # Memory and events that this process exported, by handle.
        self._own: dict[bytes, int] = {}
        # Memory and events of other processes that this one opened.
        self._opened: set[int] = set()

    def _check(self, code: int, what: str) -> None:
        if code:
            self._library.cudaGetLastError()
            said = self._library.cudaGetErrorString(code).decode()
            raise CudaFailure(f"{what} failed: {said} ({code})")

    def _made(self, what: str, *arguments: Any) -> int:
        """Call a function that writes its result to its first argument; return the result."""
        made = ctypes.c_void_p()
        self._check(getattr(self._library, what)(ctypes.byref(made), *arguments), what)
        return made.value or 0

    # Devices.

    def uuids(self) -> list[str]:
        """Return the uuid of each device of this process, the same in every process."""
        count = torch.cuda.device_count()
        return [str(torch.cuda.get_device_properties(i).uuid) for i in range(count)]

    def on(self, device: int) -> AbstractContextManager[Any]:
        """Return a scope in which the device is the current one."""
        if _current_device() == device:
            return _NOTHING
        return torch.cuda.device(device)

    def stream(self, device: int) -> int:
        """Return the device's current stream."""
        return int(_current_stream(device))

    # Of the current device.

    def allocate(self, nbytes: int) -> int:
        """Allocate memory on the current device, to be freed with `free`."""
        return self._made("cudaMalloc", nbytes)

    def free(self, memory: int) -> None:
        """Free memory, after waiting for this process's work on it."""
        self._forget(memory)
        self._check(self._library.cudaFree(memory), "cudaFree")

    def make_event(self) -> int:
        """Return an event that other processes may wait for, and record."""
        return self._made("cudaEventCreateWithFlags", _SHARED_EVENT)

    def destroy_event(self, event: int) -> None:
        """Destroy an event that was made or opened here."""
        self._forget(event)
        self._check(self._library.cudaEventDestroy(event), "cudaEventDestroy")

    # Between processes.

    def export_memory(self, memory: int) -> bytes:
        """Return the handle by which another process opens the memory."""
        return self._exported("cudaIpcGetMemHandle", memory)

    def export_event(self, event: int) -> bytes:
        """Return the handle by which another process opens the event."""
        return self._exported("cudaIpcGetEventHandle", event)

    def _exported(self, what: str, value: int) -> bytes:
        handle = _Handle()
        self._check(getattr(self._library, what)(ctypes.byref(handle), value), what)
        data = ctypes.string_at(ctypes.byref(handle), HANDLE_BYTES)
        with self._lock:
            self._own[data] = value
        return data

    def open_memory(self, handle: bytes) -> int:
        """Map memory that another process exported, for the current device."""
        return self._own.get(handle) or self._foreign(
            "cudaIpcOpenMemHandle", _Handle.from_buffer_copy(handle), _LAZY_PEER_ACCESS
        )

    def size_of(self, memory: int) -> int:
        """Return the size in bytes of memory that was allocated or opened here."""
        base, size = ctypes.c_void_p(), ctypes.c_size_t()
        code = _driver().cuMemGetAddressRange_v2(
            ctypes.byref(base), ctypes.byref(size), ctypes.c_void_p(memory)
        )
        if code:
            raise CudaFailure(f"cuMemGetAddressRange failed ({code})")
        return size.value

    def _foreign(self, what: str, *arguments: Any) -> int:
        opened = self._made(what, *arguments)
        self._opened.add(opened)
        return opened

    def close_memory(self, memory: int) -> None:
        """Undo `open_memory`."""
        if memory in self._opened:
            self._opened.discard(memory)
            self._check(self._library.cudaIpcCloseMemHandle(memory), "cudaIpcCloseMemHandle")

    def open_event(self, handle: bytes) -> int:
        """Open an event that another process exported."""
        return self._own.get(handle) or self._foreign(
            "cudaIpcOpenEventHandle", _Handle.from_buffer_copy(handle)
        )

    def close_event(self, event: int) -> None:
        """Undo `open_event`."""
        if event in self._opened:
            self._opened.discard(event)
            self.destroy_event(event)

    def _forget(self, value: int) -> None:
        with self._lock:
            for handle in [each for each, own in self._own.items() if own == value]:
                del self._own[handle]

    # On a stream.

    def copy(self, to: int, frm: int, nbytes: int, stream: int) -> None:
        """Enqueue a copy from device memory to device memory."""
        code = self._copy(to, frm, nbytes, _DEVICE_TO_DEVICE, stream)
        if code:
            self._check(code, "cudaMemcpyAsync")

    def record(self, event: int, stream: int) -> None:
        """Record the event on the stream, after all work enqueued so far."""
        code = self._record(event, stream)
        if code:
            self._check(code, "cudaEventRecord")

    def wait(self, stream: int, event: int) -> None:
        """Make later work on the stream wait for the event, on the device alone."""
        code = self._wait(stream, event, 0)
        if code:
            self._check(code, "cudaStreamWaitEvent")

    def synchronize(self, event: int) -> None:
        """Block until the event has completed."""
        self._check(self._library.cudaEventSynchronize(event), "cudaEventSynchronize")


@cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


@cache
def runtime() -> Runtime:
    """Return the runtime that PyTorch has loaded."""
    torch.cuda.init()  # type: ignore[no-untyped-call]
    with open("/proc/self/maps") as maps:
        paths = [line.split(maxsplit=5)[-1].strip() for line in maps if "libcudart" in line]
    if not paths:
        raise CudaFailure("expected PyTorch to have loaded libcudart, got none")
    return Runtime(ctypes.CDLL(paths[0]))
