"""A card: what a worker says about itself to the others of its world."""

from typing import Final

import msgspec

from telegrad._version import __version__
from telegrad.rpc.names import WorkerInfo

OPEN: Final = 0
"""The size of an open world, whose workers come and go."""


class Card(msgspec.Struct, array_like=True, frozen=True):
    """A worker of a world. `script` identifies its script, and is "" if it has none."""

    name: str
    rank: int
    world_size: int
    address: str
    incarnation: int
    script: str = ""
    version: str = __version__

    @property
    def info(self) -> WorkerInfo:
        """The worker as others refer to it."""
        return WorkerInfo(self.name, self.rank, self.incarnation)


def world_of(size: int) -> str:
    """Describe a world of that size."""
    return "an open world" if size == OPEN else f"a world of {size} workers"
