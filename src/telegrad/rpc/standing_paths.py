"""The paths of a worker that listens nowhere: it keeps one open to each worker that listens.

Others can't dial it, since it is behind a firewall or a translated address, so their requests come
over the paths that it opened. If a path breaks or can't be opened, the worker dials again, at ever
longer intervals.
"""

import math
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from telegrad.errors import TelegradError
from telegrad.rpc.protocol.session import Session

if TYPE_CHECKING:
    from telegrad.rpc.worker import Worker

# The first pause between two tries, as a share of `Options.lost_after`.
_FIRST_PAUSE: Final = 1 / 50


class StandingPaths:
    """The standing paths of one worker; none if it listens."""

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker
        # By name: when to dial next, and the pause after that.
        self._tries: dict[str, tuple[float, float]] = {}
        if not worker.options.listen:
            worker.on_worker_lost(lambda *_: self._rouse)

    def _rouse(self) -> None:
        self._worker.host.rouse(self._worker.host.now())

    def _missing(self) -> list[Session]:
        worker = self._worker
        if worker.options.listen or worker.closed:
            return []
        others = [peer for peer in worker.peers.all() if peer.info.name != worker.name]
        return [peer for peer in others if peer.address and _is_closed(peer)]

    def next_due(self) -> float:
        """Return when `open` has something to do."""
        missing = self._missing()
        return min(
            (self._tries.get(each.info.name, (0.0, 0.0))[0] for each in missing), default=math.inf
        )

    def open(self, now: float) -> None:
        """Begin to open the paths that are due, on threads of their own."""
        longest = self._worker.options.lost_after
        missing = self._missing()
        self._tries = {
            each.info.name: self._tries.get(each.info.name, (0.0, longest * _FIRST_PAUSE))
            for each in missing
        }
        for peer in missing:
            due, pause = self._tries[peer.info.name]
            if due <= now:
                self._tries[peer.info.name] = now + pause, min(2 * pause, longest)
                self._worker.host.start(partial(self._open, peer, now + longest))

    def _open(self, peer: Session, deadline: float) -> None:
        with suppress(TelegradError):
            self._worker.path_to(peer, deadline)


def _is_closed(peer: Session) -> bool:
    return peer.outgoing is None or peer.outgoing.closed
