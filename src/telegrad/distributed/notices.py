"""Notices to the workers that share a context, a pass or a level, if they can be reached.

One that is lost is not dialled, as a rule: what it had went with it.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from telegrad.rpc.peers import Session
from telegrad.rpc.worker import Worker


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

    With `dials_lost` one that was lost is dialled again: it may live, and be asked for what it has.
    One that `rides` has time, and goes with what is sent next.
    """
    try:
        peer = worker.find(to)
        if peer.lost is not None and not dials_lost:
            return False
        worker.outgoing.notify(peer, service, header, rides)
    except Exception:
        return False
    return True


def reachable(worker: Worker, name: str) -> Session | None:
    """Return a worker to which a notice goes at once: it hears of it, or loses this one."""
    peer = worker.peers.get(name)
    return None if peer is None or peer.outgoing is None or peer.outgoing.closed else peer


def forward(
    worker: Worker, to: str | int, service: str, header: Any, *, rides: bool = False
) -> None:
    """Notify one of several, on a thread of its own if it must be dialled: that may take long."""
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

    Who has more to say to them by then takes it, and says both at once.
    """

    worker: Worker
    others: Sequence[str]
    service: str
    header: list[Any]

    def flush(self) -> None:
        """Notify those who have not been; some perhaps twice, if it is interrupted."""
        for name in self.others:
            forward(self.worker, name, self.service, self.header, rides=True)
        self.others = ()

    def take(self) -> list[Any]:
        """Return what the caller says to them now."""
        self.others = ()
        self.worker.outgoing.rides.pop(self, None)
        return self.header
