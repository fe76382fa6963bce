"""All-gather by remote calls: each worker of a *meeting* gives an object and gets everyone's.

The worker whose name sorts first leads. Each other worker makes one call to the leader, which
carries its object and is answered with all objects. The leader makes one call to each other worker,
which is answered when that worker has all objects. So a lost worker ends everyone's wait, and the
leader does not leave before the others were answered. A worker that gives up tells those that it
has calls open to, whether they have joined or not: a call that is never answered would keep a
worker from leaving.

A meeting is identified by its members' incarnations and a number, so that threads may hold several
meetings at once, and calls of a worker's earlier incarnation don't match.
"""

import threading
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from telegrad.errors import PeerError, UsageError
from telegrad.rpc.calls.future import Future
from telegrad.rpc.calls.incoming import async_execution
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.worker import Worker
from telegrad.torch.rpc import constants
from telegrad.torch.rpc.calls import current
from telegrad.torch.rpc.failures import as_torch_raises

_Number = tuple[str, int]


class _Meeting:
    """One worker's state of a meeting."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.outcome: Future[dict[str, Any]] = Future()
        """All objects, by worker."""
        self._lock = threading.Lock()

    def give(self, name: str, given: Any, size: int) -> None:
        """Add a worker's object; the last one ends the meeting."""
        with self._lock:
            self.objects[name] = given
            is_over = len(self.objects) == size
        if is_over:
            self.settle(None)

    def settle(self, error: BaseException | None) -> None:
        """End the meeting, or fail it; only the first call has an effect."""
        self.outcome._settle(None if error is not None else self.objects, error)


class _Meetings:
    """The meetings of one worker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun: dict[str, int] = defaultdict(int)
        self._open: dict[_Number, _Meeting] = {}

    def begin(self, group: str) -> tuple[_Number, _Meeting]:
        """Join the group's next meeting."""
        with self._lock:
            number = group, self._begun[group]
            self._begun[group] += 1
            return number, self._open.setdefault(number, _Meeting())

    def find(self, number: _Number) -> _Meeting | None:
        """Return a meeting that this worker is in or will join; None if it has left it."""
        with self._lock:
            if number[1] < self._begun[number[0]]:
                return self._open.get(number)
            return self._open.setdefault(number, _Meeting())

    def end(self, number: _Number) -> None:
        """Leave a meeting."""
        with self._lock:
            self._open.pop(number, None)


_lock = threading.Lock()
_of_worker: WeakKeyDictionary[Worker, _Meetings] = WeakKeyDictionary()


def _meetings(worker: Worker) -> _Meetings:
    with _lock:
        return _of_worker.setdefault(worker, _Meetings())


def all_gather(
    given: Any,
    worker_names: Iterable[str] | None = None,
    timeout: float = constants.UNSET_RPC_TIMEOUT,
) -> dict[str, Any]:
    """Give an object; return all workers' objects, by name, when all have called this.

    Arguments:
        given: This worker's object.
        worker_names: The workers that meet, including this one; None for all.
        timeout: The seconds to wait; 0 or -1 for no limit.

    Raises:
        RuntimeError: If this worker is not among them, or one is lost, late or gives up.
    """
    worker = current()
    with as_torch_raises():
        chosen = set(worker_names) if worker_names else worker.peers.by_name
        who = sorted((worker.find(name).info for name in chosen), key=lambda info: info.name)
        if worker.info not in who:
            raise RuntimeError(
                f"expected {worker.name!r}, which meets the others, among {[i.name for i in who]}"
            )
        # No limit by default, since a lost worker ends the wait anyway.
        seconds = 0.0 if timeout == constants.UNSET_RPC_TIMEOUT else timeout
        meetings = _meetings(worker)
        number, meeting = meetings.begin(",".join(f"{i.name}@{i.incarnation}" for i in who))
        leader, *others = who
        try:
            if worker.info == leader:
                return _lead(worker, number, meeting, given, others, seconds)
            args = number, worker.name, given, len(who)
            objects: dict[str, Any] = worker.rpc_sync(leader, _give, args, None, seconds)
            return objects
        except BaseException as error:
            why = f"worker {worker.name!r} gave up a meeting: {error}"
            meeting.settle(PeerError(why))
            for info in others if worker.info == leader else [leader]:
                with suppress(PeerError, UsageError):
                    worker.rpc_async(info, _give_up, (number, why))
            raise
        finally:
            meetings.end(number)
            # This answers the leader's call, `_attend`.
            meeting.settle(None)


def _lead(
    worker: Worker,
    number: _Number,
    meeting: _Meeting,
    given: Any,
    others: list[WorkerInfo],
    seconds: float,
) -> dict[str, Any]:
    calls: dict[str, Future[None]] = {}

    def watch(call: Future[None]) -> None:
        error = call.exception()
        if error is not None:
            meeting.settle(error)

    for info in others:
        calls[info.name] = worker.rpc_async(info, _attend, (number,), None, seconds)
        calls[info.name].add_done_callback(watch)
    meeting.give(worker.name, given, len(others) + 1)
    objects = meeting.outcome.wait(seconds or None)
    _await_all(calls, seconds)
    return objects


def _await_all(calls: dict[str, Future[None]], seconds: float) -> None:
    late: dict[str, Exception] = {}
    for name, call in calls.items():
        try:
            call.wait()
        except PeerError as error:
            late[name] = error
    if late:
        first = next(iter(late.values()))
        raise RuntimeError(
            f"Followers {list(late)} timed out in _all_gather after {seconds:.2f} seconds. The "
            f"first exception is {first}"
        ) from first


@async_execution
def _give(number: _Number, name: str, given: Any, size: int) -> Future[dict[str, Any]]:
    """Add a worker's object to the leader's meeting; answer with all objects."""
    meeting = _meetings(current()).find(number)
    if meeting is None:
        raise PeerError(f"worker {current().name!r} gave up the meeting before {name!r} came")
    meeting.give(name, given, size)
    return meeting.outcome


@async_execution
def _attend(number: _Number) -> Future[Any]:
    """Answer the leader when this worker has joined and has all objects, or has left."""
    meeting = _meetings(current()).find(number)
    if meeting is not None:
        return meeting.outcome.then(lambda _: None)
    gone: Future[Any] = Future()
    gone.set_result(None)
    return gone


def _give_up(number: _Number, why: str) -> None:
    """End this worker's meeting with an error, also if it has not joined yet."""
    meeting = _meetings(current()).find(number)
    if meeting is not None:
        meeting.settle(PeerError(why))
