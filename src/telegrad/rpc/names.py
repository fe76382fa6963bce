"""The identity of a worker: its name, its id and its incarnation."""

from typing import Final

import msgspec

COUNTER_BITS: Final = 48
"""How many low bits of a 64-bit id are the counter; the bits above are its maker's id."""

UNKNOWN_ID: Final = 0xFFFF
"""The id of a peer that has proved its name but not said its id yet."""


class WorkerInfo(msgspec.Struct, frozen=True, gc=False):
    """A worker of the cluster.

    Arguments:
        name: Its name.
        id: Its rank.
        incarnation: Distinguishes this life of the worker from others.

    Examples:
        >>> rpc.get_worker_info().name
        'main'
    """

    name: str
    id: int
    incarnation: int = 0


def maker_of(number: int) -> int:
    """Return the id of the worker that made a 64-bit id."""
    return number >> COUNTER_BITS


def first_id(maker: WorkerInfo) -> int:
    """Return the id from which this life of a worker starts counting.

    Each life starts elsewhere, so that ids left over from one are not taken for the next one's.
    """
    return maker.id << COUNTER_BITS | (maker.incarnation << 24) % (1 << 47) + 1
