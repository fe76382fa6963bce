"""Notices to the workers that share a context, a pass or a level, if they can be reached.

A lost worker is usually not dialled, since what it had is lost with it.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from telegrad.rpc.worker import Worker

if TYPE_CHECKING:
    from telegrad.rpc.protocol.session import Session


def notify(
    worker: Worker,
    to: str | int,
    service: str,
    header: Any,
    *,
    dials_lost: bool = False,
    rides: bool = False,
) -> bool:
    """Send a notice, which arrives unless `to` is lost; return whether `to` can be reached.

    With `dials_lost`, a lost worker is dialled again: it may be alive, and be asked for what it
    has. A notice that `rides` has time, and waits for what is sent next.
    """
    try:
        peer = worker.find(to)
        if peer.lost is not None and not dials_lost:
            return False
        worker.outgoing.notify(peer, service, header, rides)
    except Exception:
        return False
    return True


def reachable(worker: Worker, name: str) -> "Session | None":
    """Return the session of a worker that a notice reaches without dialling; else None."""
    peer = worker.peers.get(name)
    return None if peer is None or peer.outgoing is None or peer.outgoing.closed else peer


def forward(
    worker: Worker, to: str | int, service: str, header: Any, *, rides: bool = False
) -> None:
    """Notify one of several, on another thread if it must be dialled, which may take long."""
    peer = None if isinstance(to, int) else reachable(worker, to)
    if peer is None:
        worker.host.start(partial(notify, worker, to, service, header))
        return
    try:
        worker.outgoing.notify(peer, service, header, rides)
    except Exception:
        # It is lost, and what it had with it.
        return


class LateNotice(msgspec.Struct, eq=False):
    """A notice to several that has time: it goes before the next frame (``Outgoing.ride``).

    If there is more to say to them before that, that takes this, and says both at once.
    """

    worker: Worker
    others: Sequence[str]
    service: str
    header: list[Any]

    def flush(self) -> None:
        """Notify those that have not been; if this is interrupted, some perhaps twice."""
        for name in self.others:
            forward(self.worker, name, self.service, self.header, rides=True)
        self.others = ()

    def take(self) -> list[Any]:
        """Return what the notice says, which the caller will say now."""
        self.others = ()
        self.worker.outgoing.rides.pop(self, None)
        return self.header
