"""Notices to the workers that share a context, a pass or a level, if they can be reached.

One that is lost is not dialled, as a rule: what it had went with it.
"""

from functools import partial
from typing import Any

from telegrad.rpc.peers import Session
from telegrad.rpc.worker import Worker

__all__ = ["forward", "notify", "reachable"]


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
    if isinstance(to, int) or reachable(worker, to) is None:
        worker.host.start(partial(notify, worker, to, service, header))
    else:
        notify(worker, to, service, header, rides=rides)
