"""Who is here: the seam between a worker and the place where those of its world meet.

A worker *enters* a roster with its card and is given everyone's: at once in an open world, else
when all are in. From then on the roster *follows*: it tells who came and who left, by incarnation.
That a worker was lost is told by the worker's own detector, not by a roster.

Two rosters: one served by rank 0 (`served_roster.py`), which ends with it, and one on a board that
outlives every worker (`board_roster.py`).
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from telegrad.errors import UsageError
from telegrad.rpc.membership.card import Card
from telegrad.rpc.worker import Worker


class Came(msgspec.Struct, frozen=True, tag="came"):
    """A worker has come, for the first time or again."""

    card: Card


class Left(msgspec.Struct, frozen=True, tag="left"):
    """A life of a worker is over."""

    name: str
    incarnation: int


RosterChange: TypeAlias = Came | Left


class WorldMismatch(UsageError):
    """A worker of an open world where one of fixed size meets, or the other way round."""


class Roster(Protocol):
    """Where the workers of one world learn of each other."""

    def choose_rank(self, name: str) -> int:
        """Return a rank that no other worker has, for one that was given none."""

    def enter(self, worker: Worker, card: Card, timeout: float) -> list[Card]:
        """Let the others know of this worker; return everyone's card, by rank."""

    def follow(self, on_change: Callable[[RosterChange], object]) -> None:
        """Tell of each change from now on, in order."""

    def refresh(self) -> None:
        """Tell of what has changed just now."""

    def leave(self) -> None:
        """Let the others know that this worker goes."""

    def close(self) -> None:
        """Free everything; may be called again."""
