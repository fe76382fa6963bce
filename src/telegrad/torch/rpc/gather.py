"""Meetings of workers by calls alone: everyone gives an object and gets everybody's.

The worker whose name sorts first leads. Each of the others has one call open to it, which gives an
object and is answered with everybody's; and the leader has one open to each of them, which is
answered when that worker has what it came for. So nobody waits for a worker that is lost, and the
leader does not leave before the others were answered. Who gives up says so to those it has calls
open to, whether they have come or not: no call is served for ever, which would keep a worker from
leaving.

A meeting is known by the incarnations of those who take part and by a number, so that threads may
hold several, and those of a worker's earlier incarnation don't count.
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
    """What one of its workers knows of it."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.outcome: Future[dict[str, Any]] = Future()
        """Everybody's objects."""
        self._lock = threading.Lock()

    def give(self, name: str, given: Any, size: int) -> None:
        """Take an object; with the last one the meeting is over."""
        with self._lock:
            self.objects[name] = given
            is_over = len(self.objects) == size
        if is_over:
            self.settle(None)

    def settle(self, error: BaseException | None) -> None:
        """End the meeting, or fail it; the first call counts."""
        self.outcome._settle(None if error is not None else self.objects, error)


class _Meetings:
    """The meetings of one worker."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun: dict[str, int] = defaultdict(int)
        self._open: dict[_Number, _Meeting] = {}

    def begin(self, group: str) -> tuple[_Number, _Meeting]:
        """Come to the group's next meeting."""
        with self._lock:
            number = group, self._begun[group]
            self._begun[group] += 1
            return number, self._open.setdefault(number, _Meeting())

    def find(self, number: _Number) -> _Meeting | None:
        """Return the meeting, which this worker is in or will come to; None if it has left."""
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
    """Give an object; return everybody's, by name, when all have come.

    Arguments:
        given: This worker's object.
        worker_names: Those who meet, this worker among them; None for all.
        timeout: The seconds to wait; 0 or -1 for no end.

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
        # Nobody waits for a worker that is lost: without a timeout there is no end.
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
            # The leader asks whether this worker has what it came for.
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
    """Give the leader the object of a worker; answer with everybody's."""
    meeting = _meetings(current()).find(number)
    if meeting is None:
        raise PeerError(f"worker {current().name!r} gave up the meeting before {name!r} came")
    meeting.give(name, given, size)
    return meeting.outcome


@async_execution
def _attend(number: _Number) -> Future[Any]:
    """Answer the leader when this worker has come and has everybody's objects, or left."""
    meeting = _meetings(current()).find(number)
    if meeting is not None:
        return meeting.outcome.then(lambda _: None)
    gone: Future[Any] = Future()
    gone.set_result(None)
    return gone


def _give_up(number: _Number, why: str) -> None:
    """End a worker's meeting with an error; it may not have come yet."""
    meeting = _meetings(current()).find(number)
    if meeting is not None:
        meeting.settle(PeerError(why))
