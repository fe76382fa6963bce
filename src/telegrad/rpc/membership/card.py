"""What a worker says of itself to those it is to meet."""

from typing import Final

import msgspec

from telegrad._version import __version__
from telegrad.rpc.names import WorkerInfo

OPEN: Final = 0
"""The size of an open world: whose workers come and go."""


class Card(msgspec.Struct, array_like=True, frozen=True):
    """A worker of a world. `script` tells its script from others; "" is that of none."""

    name: str
    rank: int
    world_size: int
    address: str
    incarnation: int
    script: str = ""
    version: str = __version__

    @property
    def info(self) -> WorkerInfo:
        """Who it is."""
        return WorkerInfo(self.name, self.rank, self.incarnation)


def world_of(size: int) -> str:
    """Return a world of that size in words."""
    return "an open world" if size == OPEN else f"a world of {size} workers"
