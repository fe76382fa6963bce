"""A roster knows who is here: the seam between a worker and the place where its world meets.

A worker *enters* a roster with its card and gets everyone's: at once in an open world, otherwise
when all are there. From then on it *follows* the roster, which reports who came and who left, by
incarnation. Lost workers are not a roster's business: each worker detects losses itself.

There are two rosters: one served by rank 0, which ends with it (`served_roster.py`), and one on a
board that outlives every worker (`board_roster.py`).
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from telegrad.errors import UsageError
from telegrad.rpc.membership.card import Card
from telegrad.rpc.worker import Worker


class Came(msgspec.Struct, frozen=True, tag="came"):
    """A worker has joined, for the first time or again."""

    card: Card


class Left(msgspec.Struct, frozen=True, tag="left"):
    """A life of a worker is over."""

    name: str
    incarnation: int


RosterChange: TypeAlias = Came | Left


class WorldMismatch(UsageError):
    """A worker of an open world meets one of fixed size, or the other way round."""


class Roster(Protocol):
    """The place where the workers of one world learn of each other."""

    def choose_rank(self, name: str) -> int:
        """Return a rank that no other worker has, for a worker that was given none."""

    def enter(self, worker: Worker, card: Card, timeout: float) -> list[Card]:
        """Announce this worker to the others; return everyone's card, by rank."""

    def follow(self, on_change: Callable[[RosterChange], object]) -> None:
        """Call `on_change` with each change from now on, in order."""

    def refresh(self) -> None:
        """Report changes at once."""

    def leave(self) -> None:
        """Announce to the others that this worker leaves."""

    def close(self) -> None:
        """Free everything; may be called again."""
