"""What tests see inside futures, links, locks and threads, and take hold of there.

Tests go through what is public where that says the same. For the rest, here alone they know what
it is called inside.
"""

import collections
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from telegrad.rpc.driver.lead import Lead
from telegrad.rpc.driver.link import Link
from telegrad.rpc.driver.served_link import ServedLink
from telegrad.rpc.driver.spin import Spinning

__all__ = [
    "before_looking",
    "before_next_write",
    "claim_reads",
    "followers",
    "grow_impatient",
    "has_callbacks",
    "has_kept",
    "is_being_written",
    "is_read",
    "is_spinning",
    "leader_of",
    "leave_reads",
    "lock_of",
    "pause_where_threads_race",
    "ping_often",
    "places_of",
    "pool_of",
    "reader_of",
    "refuse_who_waits",
    "replace_lock",
    "resting",
    "seats",
    "sleepers",
    "socket_of",
    "takes_nested",
    "tidy_before_a_link_ends",
    "unproved",
    "writing",
    "writing_for_a_moment",
]


def sleepers(future: Any) -> int:
    """How many threads sleep until it is settled."""
    return len(future._sleepers or ())


def has_callbacks(future: Any) -> bool:
    return bool(future._callbacks)


@contextlib.contextmanager
def writing(link: Any) -> Iterator[None]:
    """Be whoever sends something on the link that the other side does not take."""
    link._write.acquire()
    try:
        yield
    finally:
        link._write.release()


def before_next_write(link: Any, act: Callable[[], object]) -> None:
    """Have something happen just before a thread next takes the right to write on the link."""
    lock = link._write

    class Write:
        def acquire(self, *args: Any) -> bool:
            link._write = lock
            act()
            return bool(lock.acquire(*args))

    link._write = Write()


@contextlib.contextmanager
def writing_for_a_moment(link: Any) -> Iterator[None]:
    """Be whoever writes on the link when a thread next looks, and no longer."""
    lock = link._write

    class Write:
        def acquire(self, *_: Any) -> bool:
            link._write = lock
            return False

    link._write = Write()
    try:
        yield
    finally:
        link._write = lock


def is_being_written(link: Any) -> bool:
    """Whether a thread sends on the link."""
    return bool(link._write.locked())


def claim_reads(link: Any, who: int) -> bool:
    """Be whoever reads the link, unless there is one."""
    return bool(link._reads.setdefault(None, who) == who)


def is_read(link: Any) -> bool:
    """Whether a thread has the right to read the link."""
    return bool(link._reads)


def leave_reads(link: Any) -> None:
    """Read the link no more, and tell nobody."""
    link._reads.clear()


def followers(link: Any) -> int:
    """How many threads wait while another one reads the link."""
    return len(link._followers)


def has_kept(link: Any) -> bool:
    """Whether frames are kept that go with the next."""
    return bool(link._kept)


def takes_nested(link: Any) -> bool:
    """Whether a thread sleeps that runs what its callee calls back."""
    return bool(link._waiting)


def leader_of(lead: Any) -> int:
    """The id of the thread that leads; 0 if nobody does."""
    return int(lead._leader)


def before_looking(lead: Any, task: Callable[[], object]) -> None:
    """Run a task, once, on the thread that leads, between two turns."""
    wait = lead._wait

    def run_and_wait() -> Any:
        lead._wait = wait
        task()
        return wait()

    lead._wait = run_and_wait


def is_spinning() -> bool:
    """Whether a thread of this process spins."""
    return Spinning._is_taken


def reader_of(link: Any) -> Any:
    return link._reader


def socket_of(connection: Any) -> Any:
    return connection._socket


def tidy_before_a_link_ends(host: Any) -> None:
    """Free what has ended each time just before a link that ends is noted."""

    class Late(type(host._ended)):  # type: ignore[misc]
        def append(self, link: Any) -> None:
            host.tidy()
            super().append(link)

    host._ended = Late()


def unproved(listener: Any) -> int:
    """How many have come and not proved the key yet."""
    return len(listener._openings)


def pool_of(host: Any) -> Any:
    """The threads that a worker's requests run on."""
    return host._pool


def seats(pool: Any) -> Any:
    return pool._seats


def resting(host: Any) -> int:
    """How many threads wait for something to do."""
    return len(host._pool._resting)


def pause_where_threads_race(monkeypatch: Any, pause: Callable[[], object]) -> None:
    """Pause as a follower was enlisted, the right to read or the lead released, a turn taken."""

    class Followers(collections.deque[Any]):
        def append(self, sleeper: Any) -> None:
            super().append(sleeper)
            pause()

    def has_followers(link: Any, *args: Any) -> None:
        begin(link, *args)
        link._followers = Followers()

    def then_pauses(method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            try:
                return method(*args)
            finally:
                pause()

        return run

    def pauses_first(method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            pause()
            return method(*args)

        return run

    begin = Link.__init__
    monkeypatch.setattr(Link, "__init__", has_followers)
    for kind in (Link, ServedLink):
        monkeypatch.setattr(kind, "_read_released", pauses_first(kind._read_released))
    monkeypatch.setattr(Lead, "offer", pauses_first(Lead.offer))
    monkeypatch.setattr(ServedLink, "take_turn", then_pauses(ServedLink.take_turn))


def lock_of(owner: Any) -> Any:
    return owner._lock


def places_of(handlers: Any) -> dict[Any, int]:
    """How many requests of each path run on threads of their own, as the bound counts them."""
    return dict(handlers._of_paths)


def replace_lock(owner: Any, made: Callable[[Any], Any]) -> None:
    """Have the owner use what is made of its lock."""
    owner._lock = made(owner._lock)


def grow_impatient(worker: Any, lost_after: float) -> None:
    """Have a worker that has met its peers wait less for a sign of life from now on."""
    _check_on(worker, lost_after, lost_after / 5)


def ping_often(worker: Any, interval: float) -> None:
    """Have a worker ping the peers that it has met more often, and be as patient as before."""
    _check_on(worker, None, interval)


def _check_on(worker: Any, lost_after: float | None, interval: float) -> None:
    now = worker.host.now()
    for path in worker.peers.endpoints():
        liveness = path.liveness
        liveness.lost_after = liveness.lost_after if lost_after is None else lost_after
        liveness.interval = interval
        liveness.heard = liveness.ticked = path.next_tick = now
    worker.host.rouse(now)


def refuse_who_waits(room: Any) -> None:
    """End the turns of all requests that wait for room."""
    with room.changed:
        for asking in room._asking:
            asking.until = 0.0
        room.changed.notify_all()
