"""Who is who: a worker's name, its id and which of its lives this is."""

from typing import Final

import msgspec

COUNTER_BITS: Final = 48
"""How many low bits of a 64-bit id are a counter; above them is the id of its maker, a worker."""

UNKNOWN_ID: Final = 0xFFFF
"""The id of a peer that has proved its name but has not told its id yet."""


class WorkerInfo(msgspec.Struct, frozen=True, gc=False):
    """A worker of the cluster.

    Arguments:
        name: Its name.
        id: Its rank.
        incarnation: What tells one life from the next.

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
    """Return the id from which this life of a worker counts.

    Each counts from elsewhere: what a dead one left behind is not taken for that of the next.
    """
    return maker.id << COUNTER_BITS | (maker.incarnation << 24) % (1 << 47) + 1
