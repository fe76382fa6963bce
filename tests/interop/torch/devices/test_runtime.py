"""CUDA's runtime by ctypes, over a library that is none: what is made, opened, given back, told."""

import ctypes

import pytest
from tests.interop.torch.devices.ledger import Ledger

from telegrad.interop.torch.devices.runtime import HANDLE_BYTES, CudaFailure, Runtime


class Library:
    """Answers like the driver; a function that is to fail does so once."""

    def __init__(self):
        self.fails = {}
        self.last_error = 0
        self.next = 0x1000
        self._functions = {}

    def __getattr__(self, name):
        if not name.startswith("cuda"):
            raise AttributeError(name)
        return self._functions.setdefault(name, Function(self, name))


class Function:
    def __init__(self, library, name):
        self.library, self.name = library, name

    def __call__(self, *arguments):
        library, name = self.library, self.name
        if name == "cudaGetLastError":
            library.last_error = 0
        if name == "cudaGetErrorString":
            return b"said by the driver"
        if name in library.fails:
            library.last_error = library.fails.pop(name)
            return library.last_error
        if name in ("cudaMalloc", "cudaEventCreateWithFlags") or "Open" in name:
            library.next += 0x100
            arguments[0]._obj.value = library.next
        elif "Get" in name and "Handle" in name:
            handle = ctypes.cast(arguments[0], ctypes.POINTER(ctypes.c_char * HANDLE_BYTES))
            handle.contents[:] = arguments[1].to_bytes(HANDLE_BYTES, "little")
        return 0


@pytest.fixture
def cuda():
    made = Runtime(Library())
    made._library = Ledger(made._library)
    return made


def test_what_was_exported_here_is_looked_up_here_and_closed_by_its_owner_alone(cuda):
    memory, event = cuda.allocate(512), cuda.make_event()
    handles = cuda.export_memory(memory), cuda.export_event(event)
    assert [len(each) for each in handles] == [HANDLE_BYTES] * 2
    assert cuda.open_memory(handles[0]) == memory
    assert cuda.open_event(handles[1]) == event
    cuda.close_memory(memory)
    cuda.close_event(event)
    assert cuda._library.taken == {("memory", memory): 512, ("event", event): 0}
    cuda.free(memory)
    cuda.destroy_event(event)
    assert cuda._library.taken == {}
    # What another process exported since may have the same handle.
    assert cuda.open_memory(handles[0]) != memory


def test_what_another_process_exported_is_closed_once(cuda):
    memory, event = cuda.open_memory(b"m" * HANDLE_BYTES), cuda.open_event(b"e" * HANDLE_BYTES)
    assert len(cuda._library.taken) == 2
    for _ in range(2):
        cuda.close_memory(memory)
        cuda.close_event(event)
    assert cuda._library.taken == {}


@pytest.mark.parametrize(
    ("name", "call"),
    {
        "cudaMalloc": lambda cuda: cuda.allocate(1 << 50),
        "cudaIpcOpenMemHandle": lambda cuda: cuda.open_memory(b"x" * HANDLE_BYTES),
        "cudaMemcpyAsync": lambda cuda: cuda.copy(1, 2, 3, 4),
        "cudaStreamWaitEvent": lambda cuda: cuda.wait(1, 2),
        "cudaEventRecord": lambda cuda: cuda.record(1, 2),
        "cudaEventSynchronize": lambda cuda: cuda.synchronize(1),
    }.items(),
)
def test_a_failure_has_the_words_of_the_driver_and_is_not_left_for_pytorch(cuda, name, call):
    library = cuda._library._library
    library.fails[name] = 2
    with pytest.raises(CudaFailure, match=rf"{name} failed: said by the driver \(2\)"):
        call(cuda)
    assert library.last_error == 0
    assert cuda._library.taken == {}
