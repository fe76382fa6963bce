"""Send notices to the workers that share a context, a pass or a level, if they can be reached.

A lost worker is usually not dialled, since its state is lost with it.
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

    With `dials_lost`, a lost worker is dialled again, since it may be alive and still have its
    state. A notice that `rides` is not urgent: it waits for the next frame.
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
    """Return a worker's session if it is connected; None if it would have to be dialled."""
    peer = worker.peers.get(name)
    return None if peer is None or peer.outgoing is None or peer.outgoing.closed else peer


def forward(
    worker: Worker, to: str | int, service: str, header: Any, *, rides: bool = False
) -> None:
    """Send a notice; if the worker must be dialled, which may take long, on another thread."""
    peer = None if isinstance(to, int) else reachable(worker, to)
    if peer is None:
        worker.host.start(partial(notify, worker, to, service, header))
        return
    try:
        worker.outgoing.notify(peer, service, header, rides)
    except Exception:
        # It is lost, and its state with it.
        return


class LateNotice(msgspec.Struct, eq=False):
    """A notice to several workers that waits for the next frame (``Outgoing.ride``).

    A later notice to them may take this one's content and send both at once.
    """

    worker: Worker
    others: Sequence[str]
    service: str
    header: list[Any]

    def flush(self) -> None:
        """Send the notice, unless it was sent; if interrupted, some workers may get it twice."""
        for name in self.others:
            forward(self.worker, name, self.service, self.header, rides=True)
        self.others = ()

    def take(self) -> list[Any]:
        """Return the notice's header for the caller to send, and cancel the notice."""
        self.others = ()
        self.worker.outgoing.rides.pop(self, None)
        return self.header
