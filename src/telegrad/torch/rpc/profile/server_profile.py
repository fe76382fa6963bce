"""Profile the requests that a worker serves, on all its threads, with PyTorch's profiler.

``_server_process_global_profile`` is entered and left on the profiled worker, most often by remote
calls. Each request served meanwhile is recorded, and shown by every such profile that was on from
the request's beginning to its end.
"""

from itertools import chain
from typing import Any

from torch.autograd import profiler_legacy
from torch.autograd.profiler_util import EventList, FunctionEvent

from telegrad.errors import UsageError
from telegrad.rpc.current import current_worker
from telegrad.torch.rpc.profile.watch import Watch, begin_watch, end_watch

_EventList: Any = EventList


class _server_process_global_profile(profiler_legacy.profile):
    """A profile of all requests that this worker serves, on all threads."""

    process_global_function_events: list[list[FunctionEvent]]
    """For each request, its events."""

    def __enter__(self) -> Any:
        if not self.enabled:
            return None
        if self.entered:
            raise RuntimeError("autograd profiler traces are not reentrant")
        worker = current_worker()
        watch = begin_watch(worker)
        if watch is None:
            raise UsageError(
                f"expected no profile of telegrad's to be on, got one at {worker.name!r}: leave it "
                "before you enter another"
            )
        watch.profiles[self] = []
        self.entered = True
        return self

    def __exit__(self, *exception: object) -> None:
        if not self.enabled:
            return
        worker = current_worker()
        watch = worker.observer
        if not isinstance(watch, Watch) or self not in watch.profiles:
            raise UsageError(
                f"expected a profile that was entered on worker {worker.name!r}, got another: "
                "leave it once, where it was entered"
            )
        self.process_global_function_events = watch.profiles.pop(self)
        end_watch(worker, watch)
        found = _EventList(
            chain.from_iterable(self.process_global_function_events),
            use_device="cuda" if self.use_cuda else None,
            profile_memory=self.profile_memory,
        )
        found._build_tree()
        self.function_events = found
