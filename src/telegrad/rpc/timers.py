"""What a worker does as time passes: fail late calls, send delayed notices, check on peers.

The time is an argument: the worker's host asks for the next timer and calls when it is due.
"""

import math
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from telegrad.rpc.endpoint import RETRY_AFTER, Endpoint
from telegrad.rpc.protocol.liveness import Verdict
from telegrad.rpc.standing_paths import StandingPaths
from telegrad.rpc.wire.frames import NOTICE, Frame

if TYPE_CHECKING:
    from telegrad.rpc.worker import Worker


class Timers:
    """The timers of one worker."""

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker
        self._standing = StandingPaths(worker)

    def next_timer(self) -> float:
        """Return when run_timers has something to do."""
        if self._worker.references.needs_flush:
            return -math.inf
        due = min(
            self._worker.loopback.calls.next_deadline(),
            self._worker.outgoing.rides_until,
            self._standing.next_due(),
        )
        for path in self._worker.peers.endpoints():
            due = min(due, path.calls.next_deadline(), path.retry_at, path.next_tick)
        return due

    def run_timers(self, now: float) -> None:
        """Fail late calls, send delayed notices, check on peers."""
        self._worker.references.flush_soon()
        self._worker.outgoing.end_late_rides(now)
        self._worker.outgoing.expire(self._worker.loopback, now)
        for endpoint in self._worker.peers.endpoints():
            self._look_after(endpoint, now)
        self._standing.open(now)
        self._worker.host.tidy()

    def _look_after(self, endpoint: Endpoint, now: float) -> None:
        self._worker.outgoing.expire(endpoint, now)
        try:
            if endpoint.retry_at <= now:
                endpoint.retry_at = math.inf
                self._send_waiting(endpoint, now)
            if endpoint.next_tick > now:
                return
            endpoint.next_tick = now + endpoint.liveness.interval
            verdict = endpoint.liveness.tick(endpoint.signs_of_life(), now)
            if verdict is Verdict.LOST:
                silent = now - endpoint.liveness.heard
                self._lose_soon(endpoint, TimeoutError(f"nothing was heard for {silent:.1f} s"))
                return
            # Ping even a peer that was heard: it has to hear from this side, whose other threads
            # may all be too busy to answer.
            if endpoint.can_send():
                endpoint.ping()
            endpoint.check()
            endpoint.read_on()
        except (OSError, EOFError) as error:
            self._lose_soon(endpoint, error)

    def _send_waiting(self, endpoint: Endpoint, now: float) -> None:
        """Send the notices that wait; each leaves the queue once it was sent.

        So whoever sends the next notice meanwhile puts it behind them, not before.
        """
        # The queue is cleared when the path ends.
        with suppress(IndexError):
            while endpoint.outbox:
                if not endpoint.send(Frame(NOTICE, header=endpoint.outbox[0]), now):
                    # Try again later: timers never wait.
                    endpoint.retry_at = now + RETRY_AFTER
                    return
                endpoint.outbox.popleft()

    def _lose_soon(self, endpoint: Endpoint, cause: BaseException) -> None:
        # On another thread: the callbacks may take their time, and timers may not.
        endpoint.next_tick = math.inf
        self._worker.host.start(partial(self._worker.endpoint_lost, endpoint, cause))
