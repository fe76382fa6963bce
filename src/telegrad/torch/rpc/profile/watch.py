"""A worker's observer for PyTorch's profilers: the requests it serves, and its passes' nodes.

It is the worker's observer while a profile needs it and none of telegrad's own profiles is on.
"""

import copy
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

from torch.autograd.profiler import record_function
from torch.autograd.profiler_util import FunctionEvent

from telegrad.interop.torch.profile import Recording, is_any_on
from telegrad.rpc.calls.call import Call
from telegrad.rpc.current import current_worker
from telegrad.rpc.worker import Worker

_NOTHING: AbstractContextManager[Any] = nullcontext()
_PREFIX: Final = "torch::distributed::autograd::"
_SHOWN: Final = ("SendRpcBackward", "RecvRpcBackward")
"""The nodes that PyTorch's passes have, too. PyTorch's own nodes show themselves."""
_lock = threading.Lock()


class Watch:
    """The observer of one worker."""

    def __init__(self) -> None:
        self.users = 0
        self.profiles: dict[Any, list[list[FunctionEvent]]] = {}
        """Profiles of served requests, each with a list of events per request."""

    @contextmanager
    def handling(self, frm: str, number: int | None, what: Any, size: int) -> Iterator[None]:
        before = list(self.profiles)
        if not before or is_any_on():
            yield
            return
        recording = Recording(before[-1])
        recording.resume()
        try:
            yield
        finally:
            recording.rest()
            events = recording.events()
            for profile, served in list(self.profiles.items()):
                if profile in before:
                    # A copy for each profile, which links its events to trees.
                    served.append(copy.deepcopy(events))

    def running(self, name: str, detail: int | None = None) -> AbstractContextManager[Any]:
        if detail is not None:
            # A detail means a whole pass.
            return record_function(f"{_PREFIX}backward")
        return record_function(_PREFIX + name) if name in _SHOWN else _NOTHING

    def waiting(self, call: Call) -> AbstractContextManager[Any]:
        return _NOTHING

    def sent(self, call: Call, size: int) -> None:
        """Do nothing: the calling thread's profile shows the call."""

    def answered(self, call: Call, size: int) -> None:
        """Do nothing."""


def begin_watch(worker: Worker) -> Watch | None:
    """Return the worker's watch, for one more user; None if it has another observer."""
    with _lock:
        if worker.observer is None:
            worker.observer = Watch()
        watch = worker.observer
        if not isinstance(watch, Watch):
            return None
        watch.users += 1
        return watch


def end_watch(worker: Worker, watch: Watch) -> None:
    """End what `begin_watch` began."""
    with _lock:
        watch.users -= 1
        if not watch.users and worker.observer is watch:
            worker.observer = None


@contextmanager
def show_pass() -> Iterator[None]:
    """Show passes and their send and recv nodes in the profile of the thread that runs them."""
    worker = current_worker()
    watch = begin_watch(worker)
    try:
        yield
    finally:
        if watch is not None:
            end_watch(worker, watch)
