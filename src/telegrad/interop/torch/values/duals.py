"""How dual torch tensors are sent: primal, tangent, and a mention of their level."""

from collections.abc import Sequence
from typing import Any, Final

import torch

from telegrad.distributed.contexts.dual_levels import LevelRegistry, Mention
from telegrad.distributed.contexts.tensor_kind import CarriedDual
from telegrad.interop.torch.devices import placement
from telegrad.interop.torch.devices.placement import Placed
from telegrad.interop.torch.values import tensors
from telegrad.interop.torch.values.levels import bind, current, make_dual, tangent_of
from telegrad.rpc.wire import kinds
from telegrad.tensors import Tensor, wrap
from telegrad.tensors.forward.levels import Level

_SOME_LEVEL: Final = Level()
"""The level of all stand-ins' tangents. Only the order of levels matters; PyTorch has one."""


class CarriedTorchDual(CarriedDual):
    """A dual torch tensor on its way between two workers."""

    __slots__ = ("is_dual", "mention")

    def __init__(self, primal: Any, tangent: Any, mention: Mention) -> None:
        """Take two tensors, or the `Placed` objects that carry them to a device."""
        self.parts = [primal, tangent]
        self.mention = mention

    def arrive(self, book: LevelRegistry) -> Any:
        """Return the dual tensor; the primal alone if the level has closed since."""
        (level,) = book.meet([self.mention])
        self.is_dual = level is not None
        if level is None:
            return self.parts[0]
        bind(level)
        return make_dual(*self.parts)

    def flattened(self, arrived: Tensor) -> Sequence[Tensor]:
        """Return two stand-ins, also if the level has closed since."""
        tangent = wrap(None)
        if self.is_dual:
            arrived.tangents = beside(tangent)
        return [arrived, tangent]


def beside(tangent: Tensor) -> dict[Any, Tensor]:
    """Return a stand-in's tangents, given its one tangent."""
    return {_SOME_LEVEL: tangent}


def carry(values: list[Any], book: LevelRegistry, to: str) -> None:
    """Replace, in place, each dual torch tensor by a `CarriedTorchDual`."""
    for i, value in enumerate(values):
        if isinstance(value, torch.Tensor) and (tangent := tangent_of(value)) is not None:
            tensors.check(value)
            mention = book.share(current(), to)
            values[i] = CarriedTorchDual(value, tangent.detach(), mention)


def register() -> None:
    """Register `CarriedTorchDual` with the serialiser."""
    kinds.register(CarriedTorchDual, _to_parts, _from_parts, tag="torch.dual")


def _to_parts(dual: CarriedTorchDual) -> tuple[list[Any], Any]:
    (parts, facts), (more, tangent_facts) = map(_parts_of, dual.parts)
    return [*parts, *more], [dual.mention, len(parts), facts, tangent_facts]


def _parts_of(value: Any) -> tuple[list[Any], Any]:
    is_placed = type(value) is Placed
    parts, facts = placement.to_parts(value) if is_placed else tensors.to_parts(value)
    return parts, [is_placed, facts]


def _from_parts(parts: list[Any], facts: Any) -> CarriedTorchDual:
    mention, count, primal, tangent = facts
    return CarriedTorchDual(_made(parts[:count], *primal), _made(parts[count:], *tangent), mention)


def _made(parts: list[Any], is_placed: bool, facts: Any) -> Any:
    return placement.from_parts(parts, facts) if is_placed else tensors.from_parts(parts, facts)
