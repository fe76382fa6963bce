"""Tensors of one message that share memory also share it at the receiver.

A write to one of them shows in the others there, as at the sender. The first of them carries the
memory, the others their place in it. Tensors with gaps between them are sent separately, since the
memory in a gap is not the receiver's to see. Tensors on a device are sent separately, too.

Invariant: tensors in one memory share its version, so PyTorch notices an in-place change of one of
them if a graph has saved another.
"""

from functools import partial
from typing import Any

import torch

from telegrad.errors import ProtocolViolation
from telegrad.interop.torch.modes import run_ordinarily
from telegrad.interop.torch.values.arrays import CPU
from telegrad.interop.torch.values.tensors import from_parts, is_dense, to_parts
from telegrad.rpc.wire import kinds


class CarriedView:
    """A tensor that shares its memory with others of its message."""

    __slots__ = ("first", "memory", "offset", "requires_grad", "shape", "strides", "type")

    def __init__(self, memory: torch.Tensor | None, facts: Any) -> None:
        self.memory = memory
        """The whole memory as a one-dimensional tensor; only the group's first tensor has it."""
        self.first, self.type, self.requires_grad, self.shape, self.strides, self.offset = facts

    @property
    def facts(self) -> list[Any]:
        """What is sent besides the memory."""
        where = [list(self.shape), list(self.strides), self.offset]
        return [self.first, self.type, self.requires_grad, *where]

    def tensor_in(self, memory: torch.Tensor) -> torch.Tensor:
        """Return the tensor that this object stands for."""
        made = memory.as_strided(self.shape, self.strides, self.offset).detach()
        if self.type:
            return torch.nn.Parameter(made, requires_grad=self.requires_grad)
        return made.requires_grad_(self.requires_grad)


def carry(values: list[Any]) -> None:
    """Replace, in place, the tensors of a message that share memory by `CarriedView` objects."""
    try:
        memories = [x.untyped_storage().data_ptr() for x in values if isinstance(x, torch.Tensor)]
        if len(set(memories)) == len(memories):
            # Nearly always so.
            return
    except (RuntimeError, ValueError):
        pass  # Some tensor has no memory of its own, or none yet.
    by_memory: dict[Any, list[int]] = {}
    for i, value in enumerate(values):
        if is_dense(value) and value.is_cpu and value.numel():
            key = value.untyped_storage().data_ptr(), value.dtype, value.is_conj(), value.is_neg()
            by_memory.setdefault(key, []).append(i)
    for indices in by_memory.values():
        if len(indices) > 1:
            run_ordinarily(partial(_carry_group, values, indices))


def _carry_group(values: list[Any], indices: list[int]) -> None:
    ends = [_span(values[i]) for i in indices]
    begin, end = min(first for first, _ in ends), max(last for _, last in ends)
    if not _is_covered(begin, end, [values[i] for i in indices]):
        return
    memory = values[indices[0]].detach().as_strided((end - begin,), (1,), begin)
    for i in indices:
        value = values[i]
        place = value.shape, value.stride(), value.storage_offset() - begin
        is_parameter = type(value) is torch.nn.Parameter
        facts = indices[0], is_parameter, value.requires_grad, *place
        values[i] = CarriedView(memory if i == indices[0] else None, facts)


def _is_covered(begin: int, end: int, tensors: list[Any]) -> bool:
    """Tell whether every element of the memory belongs to one of the tensors."""
    if end - begin > sum(each.numel() for each in tensors):
        return False
    seen = torch.zeros(end - begin, dtype=torch.bool, device=CPU)
    for each in tensors:
        seen.as_strided(each.shape, each.stride(), each.storage_offset() - begin).fill_(True)
    return bool(seen.all())


def _span(tensor: Any) -> tuple[int, int]:
    """Return the offsets where a tensor's elements begin and end in its memory."""
    first = tensor.storage_offset()
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return first, first + steps + 1


def land(values: list[Any]) -> None:
    """Replace, in place, each `CarriedView` of a message by its tensor."""
    memories = {i: value.memory for i, value in enumerate(values) if type(value) is CarriedView}
    if memories:
        run_ordinarily(partial(_land, values, memories))


def _land(values: list[Any], memories: dict[int, Any]) -> None:
    for i in memories:
        carried = values[i]
        memory = memories.get(carried.first)
        if memory is None:
            raise ProtocolViolation(
                f"expected the memory of a torch tensor in slot {carried.first} of its message, "
                "got none"
            )
        try:
            values[i] = carried.tensor_in(memory)
        except (RuntimeError, TypeError) as error:
            raise ProtocolViolation(
                f"expected a torch tensor inside of the memory that came with it, got one of shape "
                f"{carried.shape!r:.200} at {carried.offset!r:.200} ({error})"
            ) from error


def register() -> None:
    """Register `CarriedView` with the serialiser."""
    kinds.register(CarriedView, _to_parts, _from_parts, tag="torch.view")


def _to_parts(carried: CarriedView) -> tuple[list[Any], Any]:
    if carried.memory is None:
        return [], [*carried.facts, None]
    parts, memory_facts = to_parts(carried.memory)
    return parts, [*carried.facts, memory_facts]


def _from_parts(parts: list[Any], facts: Any) -> CarriedView:
    *facts, memory_facts = facts
    return CarriedView(from_parts(parts, memory_facts) if parts else None, facts)
