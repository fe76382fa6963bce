"""How torch tensors with a tangent travel: primal, tangent, and what mentions their level."""

from collections.abc import Sequence
from typing import Any, Final

import torch

from telegrad.distributed.contexts.dual_levels import LevelRegistry, Mention
from telegrad.distributed.contexts.tensor_kind import CarriedDual
from telegrad.interop.torch.devices.placement import Placed
from telegrad.interop.torch.values import tensors
from telegrad.interop.torch.values.levels import bind, current, make_dual, tangent_of
from telegrad.rpc.wire import kinds
from telegrad.tensors import Tensor, wrap
from telegrad.tensors.forward.levels import Level

_SOME_LEVEL: Final = Level()
"""The level of all tangents of stand-ins: only the order of levels matters, and there is one."""


class CarriedTorchDual(CarriedDual):
    """A dual torch tensor between two workers."""

    __slots__ = ("device", "is_dual", "mention", "primal", "tangent")

    def __init__(
        self,
        primal: torch.Tensor,
        tangent: torch.Tensor,
        mention: Mention,
        device: str | None = None,
    ) -> None:
        self.device = device
        """Where it is to arrive, if it is not on the CPU here."""
        self.primal = primal
        self.tangent = tangent
        self.mention = mention

    def arrive(self, book: LevelRegistry) -> Any:
        """Return the dual tensor; the primal alone if the level has closed since."""
        (level,) = book.meet([self.mention])
        self.is_dual = level is not None
        if level is None:
            return self.primal
        bind(level)
        return make_dual(self.primal, self.tangent)

    def flattened(self, arrived: Tensor) -> Sequence[Tensor]:
        """Two, also where the level has closed since."""
        tangent = wrap(None)
        if self.is_dual:
            arrived.tangents = beside(tangent)
        return [arrived, tangent]


def beside(tangent: Tensor) -> dict[Any, Tensor]:
    """Return the tangents of a stand-in that has this one."""
    return {_SOME_LEVEL: tangent}


def carry(values: list[Any], book: LevelRegistry, to: str) -> None:
    """Replace dual torch tensors by what travels."""
    for i, value in enumerate(values):
        device, tensor = None, value
        if isinstance(value, Placed):
            device, tensor = value.device, value.tensor
        if isinstance(tensor, torch.Tensor):
            tangent = tangent_of(tensor)
            if tangent is not None:
                tensors.check(tensor)
                values[i] = CarriedTorchDual(tensor, tangent, book.share(current(), to), device)


def register() -> None:
    """Make what travels known to the serialiser."""
    kinds.register(CarriedTorchDual, _to_parts, _from_parts, tag="torch.dual")


def _to_parts(dual: CarriedTorchDual) -> tuple[list[Any], Any]:
    parts, facts = tensors.to_parts(dual.primal, dual.device)
    more, tangent_facts = tensors.to_parts(dual.tangent.detach(), dual.device)
    return [*parts, *more], [dual.mention, len(parts), facts, tangent_facts]


def _from_parts(parts: list[Any], facts: Any) -> CarriedTorchDual:
    mention, count, primal, tangent = facts
    return CarriedTorchDual(
        tensors.from_parts(parts[:count], primal),
        tensors.from_parts(parts[count:], tangent),
        mention,
    )
