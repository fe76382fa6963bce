"""Who is who: a worker's name, its id and which of its lives this is."""

from typing import Final

import msgspec

__all__ = ["COUNTER_BITS", "UNKNOWN_ID", "WorkerInfo", "maker_of"]

COUNTER_BITS: Final = 48
"""Of a 64-bit id, the lower ones; those above are the id of the worker that made it."""

UNKNOWN_ID: Final = 0xFFFF
"""The id of a peer that has proved its name but has not told its id yet."""


class WorkerInfo(msgspec.Struct, frozen=True, gc=False):
    """A worker of the cluster. `id` is its rank; `incarnation` tells one life from the next."""

    name: str
    id: int
    incarnation: int = 0


def maker_of(number: int) -> int:
    """Return the id of the worker that made a 64-bit id."""
    return number >> COUNTER_BITS
