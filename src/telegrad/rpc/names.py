"""Who is who: a worker's name, its id and which of its lives this is."""

from typing import Final

import msgspec

__all__ = ["UNKNOWN_ID", "WorkerInfo"]

UNKNOWN_ID: Final = 0xFFFF
"""The id of a peer that has proved its name but has not told its id yet."""


class WorkerInfo(msgspec.Struct, frozen=True, gc=False):
    """A worker of the cluster. `id` is its rank; `incarnation` tells one life from the next."""

    name: str
    id: int
    incarnation: int = 0
