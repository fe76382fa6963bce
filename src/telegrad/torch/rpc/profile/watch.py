"""An observer of a worker for PyTorch's profilers: what it serves, and the nodes of its passes.

It is the worker's observer while there is something to watch, and none of telegrad's own profiles
is on.
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
"""The nodes that PyTorch has as well; its own show themselves."""
_lock = threading.Lock()


class Watch:
    """The observer."""

    def __init__(self) -> None:
        self.users = 0
        self.profiles: dict[Any, list[list[FunctionEvent]]] = {}
        """Profiles that show what is served, each with the events of every request."""

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
                    # Each its own: a profile joins its events to trees.
                    served.append(copy.deepcopy(events))

    def running(self, name: str, detail: int | None = None) -> AbstractContextManager[Any]:
        if detail is not None:
            # A whole pass.
            return record_function(f"{_PREFIX}backward")
        return record_function(_PREFIX + name) if name in _SHOWN else _NOTHING

    def waiting(self, call: Call) -> AbstractContextManager[Any]:
        return _NOTHING

    def sent(self, call: Call, size: int) -> None:
        """Do nothing: a call is shown by the thread that makes it."""

    def answered(self, call: Call, size: int) -> None:
        """Do nothing."""


def begin_watch(worker: Worker) -> Watch | None:
    """Return the worker's watch, for one more user; None if another observer is there."""
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
    """Show passes, and what they send and take, in the profile of the thread that runs them."""
    worker = current_worker()
    watch = begin_watch(worker)
    try:
        yield
    finally:
        if watch is not None:
            end_watch(worker, watch)
