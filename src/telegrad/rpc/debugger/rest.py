"""Resting deadlines, while a handler of some worker is at a breakpoint: people are slow.

1. The worker whose handler stops tells all workers that it knows, and again when it goes on.
2. In between, no call fails for its deadline on any of them: it may wait for the handler through
   other calls. Afterwards each call has as much time as it had left.
3. If the stopped worker is lost, the rest is over. Lost workers are detected as usual.

A strict worker rests only for its own breakpoints: peers that it does not trust could make it rest
for ever.
"""

import itertools
import math
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from telegrad.errors import TelegradError
from telegrad.rpc.calls.call import Call
from telegrad.rpc.calls.service import ServiceRequest
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.wire.conversion import converter

if TYPE_CHECKING:
    from telegrad.rpc.endpoint import Endpoint
    from telegrad.rpc.protocol.session import Session
    from telegrad.rpc.worker import Worker

_REST: Final = "telegrad.rest"
# Seconds after which a late call checks again whether the deadlines still rest.
_PAUSE: Final = 0.5


class _News(msgspec.Struct, array_like=True):
    """A worker's deadlines begin to rest, or go on; late news is told by its lower number."""

    number: int
    rests: bool


_as_news = converter(_News)


class Rest:
    """Whether the deadlines of one worker's calls rest, and how much time each has left."""

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._own = 0
        self._heard: dict[tuple[str, int], int] = {}
        self._resting: dict[tuple[str, int], None] = {}
        """The lives of workers that are at a breakpoint."""
        self._since = math.inf
        self._left: dict[Call, float] = {}
        """The seconds that each call had left when the rest began."""
        worker.register_service(_REST, self._on_news, inline=True)
        worker.on_worker_lost(lambda who, _: partial(self._take, who, False))

    @property
    def is_on(self) -> bool:
        """Whether no call may fail for its deadline now."""
        return self._since < math.inf

    # At a breakpoint of this worker.

    def begin(self) -> None:
        """Note that a handler has stopped."""
        with self._lock:
            self._own += 1
            if self._own == 1:
                self._tell(True)

    def end(self) -> None:
        """Note that the handler goes on."""
        with self._lock:
            self._own -= 1
            if self._own == 0:
                self._tell(False)

    def _tell(self, rests: bool) -> None:
        worker, news = self._worker, _News(next(self._numbers), rests)
        self._take(worker.info, rests)
        for peer in worker.peers.all():
            if peer.info.name != worker.name and peer.lost is None:
                # On threads of their own: a peer that can't be reached must not delay the others.
                worker.host.start(partial(self._tell_one, peer, news))

    def _tell_one(self, peer: "Session", news: _News) -> None:
        with suppress(TelegradError):
            self._worker.outgoing.notify(peer, _REST, news)

    # At a breakpoint of any worker.

    def _on_news(self, request: ServiceRequest) -> None:
        news, life = _as_news(request.header), _life(request.frm)
        with self._lock:
            if self._worker.options.strict or news.number <= self._heard.get(life, 0):
                return
            self._heard[life] = news.number
            self._take(request.frm, news.rests)

    def _take(self, who: WorkerInfo, rests: bool) -> None:
        now = self._worker.host.now()
        with self._lock:
            if rests:
                self._resting[_life(who)] = None
            else:
                self._resting.pop(_life(who), None)
            if self._resting and not self.is_on:
                self._since = now
                for path in self._paths():
                    for call in list(path.calls.open.values()):
                        self._left[call] = call.deadline - now
            elif not self._resting and self.is_on:
                self._since = math.inf
                left, self._left = self._left, {}
                for call, seconds in left.items():
                    call.deadline = now + seconds
                if left:
                    self._worker.host.rouse(now + min(left.values()))

    def _paths(self) -> "list[Endpoint]":
        return [self._worker.loopback, *self._worker.peers.endpoints()]

    def put_off(self, path: "Endpoint", now: float) -> None:
        """Leave the late calls of a path open for now."""
        for call in list(path.calls.open.values()):
            if call.deadline <= now:
                self.put_off_call(call, now)

    def put_off_call(self, call: Call, now: float) -> None:
        """Leave a late call open for now."""
        with self._lock:
            if not self.is_on:
                return
            # A call made since the rest began had a timeout of at most this long.
            self._left.setdefault(call, now - self._since)
            call.deadline = now + _PAUSE


def _life(who: WorkerInfo) -> tuple[str, int]:
    return who.name, who.incarnation
