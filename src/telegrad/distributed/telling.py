"""Notices to the workers that share a context, a pass or a level: to those who can be reached.

One that is lost is not dialled: what it had went with it.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

from telegrad.rpc.worker import Worker

__all__ = ["pass_on", "tell"]


def tell(worker: Worker, to: str | int, service: str, header: Any) -> bool:
    """Sends a notice that is repeated until it arrives; says whether its worker can be reached."""
    try:
        if worker.find(to).lost is not None:
            return False
        worker.notify_service(to, service, header)
    except Exception:
        return False
    return True


def pass_on(worker: Worker, names: Iterable[str], service: str, header: Any) -> None:
    """Tells several, on a thread of its own where one must be dialled: that may take long."""
    for name in names:
        peer = worker.peers.get(name)
        if peer is not None and peer.outgoing is not None and not peer.outgoing.closed:
            tell(worker, name, service, header)
        else:
            worker.host.start(partial(tell, worker, name, service, header))
