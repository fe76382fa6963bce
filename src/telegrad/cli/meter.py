"""A meter of a worker's calls: how many there are and how many bytes they carry, by callee."""

from collections import defaultdict
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from telegrad.rpc.calls.call import Call

_NOTHING: AbstractContextManager[Any] = nullcontext()


class Traffic:
    """The calls to one worker, and the bytes to and from it."""

    __slots__ = ("calls", "received", "sent")

    def __init__(self) -> None:
        self.calls = self.sent = self.received = 0


class Meter:
    """An observer of a worker that only counts."""

    def __init__(self) -> None:
        self.by_worker: defaultdict[str, Traffic] = defaultdict(Traffic)

    @property
    def bytes(self) -> int:
        """How many bytes were sent to and received from all workers so far."""
        return sum(each.sent + each.received for each in self.by_worker.values())

    def sent(self, call: Call, size: int) -> None:
        traffic = self.by_worker[call.to.name]
        traffic.calls += 1
        traffic.sent += size

    def answered(self, call: Call, size: int) -> None:
        self.by_worker[call.to.name].received += size

    def handling(
        self, frm: str, number: int | None, what: Any, size: int
    ) -> AbstractContextManager[Any]:
        return _NOTHING

    def waiting(self, call: Call) -> AbstractContextManager[Any]:
        return _NOTHING

    def running(self, name: str, detail: int | None = None) -> AbstractContextManager[Any]:
        return _NOTHING
