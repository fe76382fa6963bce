"""How a Tensor is sent: its raw array, and whether it requires grad; with tangents, theirs too.

What a context adds to that (messages, nodes) is in ``recorder.py``. Without one, a leaf arrives as
a new leaf, so that parameters can be fetched and sent; what was computed arrives cut off from its
history, and to differentiate through it is an error (``message_nodes.CutNode``).

A dual tensor is sent as a ``CarriedDual``: primal and tangents as Tensors, and a tree that says
which level each tangent belongs to. Only a worker can name levels, so it is made and undone by the
worker's recorder, not by the serialiser.

What is on a device goes through the host's memory, pinned, and arrives on the device of the same
name; where PyTorch is there, it goes as PyTorch's tensors do (``interop/torch/devices``).
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, Final, TypeVar

import numpy as np

from telegrad.arrays.cupy import is_cupy
from telegrad.arrays.devices import device_names, device_of, placed, staged
from telegrad.arrays.host import for_numpy
from telegrad.distributed.contexts.dual_levels import LevelRegistry
from telegrad.distributed.contexts.message_nodes import CutNode
from telegrad.errors import DeviceError, ProtocolViolation, Unserializable
from telegrad.graph import next_key
from telegrad.nn.parameter import Parameter, rebuild_parameter
from telegrad.rpc.wire import kinds
from telegrad.tensors import LEAF, Tensor, wrap
from telegrad.tensors.forward.levels import Tangents

R = TypeVar("R")
# The history of a tensor where it left.
_CONSTANT: Final = 0
_LEAF: Final = 1
_COMPUTED: Final = 2


class CarriedDual:
    """A dual tensor between two workers."""

    __slots__ = ("came", "facts", "history", "parts")

    def __init__(self, parts: list[Any], facts: list[Any], history: int = _CONSTANT) -> None:
        self.parts = parts
        """Primal and tangents: Tensors of their own, or what carries them to a device."""
        self.facts = facts
        self.history = history

    @classmethod
    def of(cls, tensor: Tensor, levels: LevelRegistry, to: str) -> "CarriedDual":
        """Return the form in which a dual tensor, a ``snapshot`` of one, leaves for `to`."""
        arrays = [tensor.array]
        facts = levels.facts_of(tensor.tangents, to, arrays)
        return cls([wrap(array) for array in arrays], facts, history_code(tensor))

    def arrive(self, levels: LevelRegistry) -> Tensor:
        """Return the dual tensor, its tangents at this worker's levels."""
        self.came: list[Tensor] = []
        if not all(isinstance(part, Tensor) for part in self.parts):
            raise ProtocolViolation("expected the parts of a dual tensor, got other values")
        arrays = iter([part.array for part in self.parts])
        tensor = rebuilt(arrays, self.facts, levels, self.came)
        tensor.node = _node_of(self.history)
        return tensor

    def flattened(self, arrived: Tensor) -> Sequence[Tensor]:
        """Return what was flattened where it left, tangents whose level has closed included."""
        return self.came


def through(values: list[Any], replace: Callable[[list[Any]], R]) -> R:
    """Have a function replace values, and the parts of those that carry dual ones."""
    carried = [value for value in values if isinstance(value, CarriedDual)]
    if not carried:
        return replace(values)
    given = [*values, *chain.from_iterable([each.parts for each in carried])]
    found = replace(given)
    rest = iter(given)
    values[:] = islice(rest, len(values))
    for each in carried:
        each.parts = list(islice(rest, len(each.parts)))
    return found


def rebuilt(
    rest: Iterator[Any],
    facts: list[Any] | None,
    levels: LevelRegistry,
    came: list[Tensor] | None = None,
) -> Tensor:
    """Return a tensor from the arrays that are next, with tangents as `facts` says.

    Arguments:
        rest: The arrays that came and were not used yet.
        facts: Which tangents there are, as ``LevelRegistry.facts_of`` describes them.
        levels: This worker's levels.
        came: Takes all that came, in the order of ``flatten`` where it left.
    """
    made = wrap(next(rest))
    if came is not None:
        came.append(made)
    if facts:
        found = levels.meet([mention for mention, _ in facts])
        tangents = [rebuilt(rest, inner, levels, came) for _, inner in facts]
        entries = {level: t for level, t in zip(found, tangents) if level is not None}
        made.tangents = Tangents(entries) if entries else None
    return made


def flatten(tensor: Tensor) -> Sequence[Tensor]:
    """Return a tensor and its tangents, theirs included, in an order that both sides share."""
    if not tensor.tangents:
        return (tensor,)
    flat = [tensor]
    for level in sorted(tensor.tangents, key=lambda each: each.depth):
        flat.extend(flatten(tensor.tangents[level]))
    return flat


def snapshot(tensor: Tensor) -> Tensor:
    """Return a copy of a dual tensor that keeps its tangents when levels close; for reading."""
    copy = wrap(tensor.array, tensor if tensor.node is LEAF else tensor.node)
    # In one step: another thread may close a level at any time.
    tangents = dict(tensor.tangents or {})
    copy.tangents = {level: snapshot(tangent) for level, tangent in tangents.items()}
    return copy


def register() -> None:
    """Make Tensors known to the serialiser; doing it again changes nothing."""
    check = _in_host_memory
    kinds.register(Tensor, _to_parts, _from_parts, tag="telegrad.Tensor", check=check)
    kinds.register(
        Parameter, _to_parts, _parameter_from_parts, tag="telegrad.nn.Parameter", check=check
    )
    kinds.register(CarriedDual, _dual_to_parts, _dual_from_parts, tag="telegrad.CarriedDual")


def _to_parts(tensor: Tensor) -> tuple[list[Any], Any]:
    array = tensor.array
    if type(array) is not np.ndarray:
        if is_cupy(array):
            return [staged(array)], [history_code(tensor), device_of(array)]
        array = _in_host_memory(tensor)
    return [array], history_code(tensor)


def refuse_map(to: str, values: list[Any]) -> None:
    """Raise if a map is to say where any of these arrives: here they go to the same name."""
    through(values, partial(_refuse_map, to))


def _refuse_map(to: str, values: list[Any]) -> None:
    for value in values:
        if isinstance(value, Tensor) and is_cupy(value.array):
            raise DeviceError(
                f"expected no Options.device_maps[{to!r}] for a tensor of shape "
                f"{tuple(value.shape)} on {device_of(value.array)}, got one, and PyTorch with "
                "CUDA, which sends tensors by maps, is not here: leave the map out, and the tensor "
                "arrives on the device of the same name, or send it as .cpu()"
            )


def _placed_here(array: Any, device: str) -> Any:
    """Return what came on the device that its sender named."""
    try:
        return placed(array, device)
    except DeviceError as error:
        names = device_names()
        if device in names:
            raise
        raise DeviceError(
            f"expected a device that this worker has ({', '.join(names)}), got {device!r} for a "
            f"tensor of shape {array.shape} that was sent to it; send it as .cpu() ({error})"
        ) from error


def history_code(tensor: Tensor) -> int:
    """Return what stands for the history of a tensor that leaves."""
    node = tensor.node
    return _CONSTANT if node is None else _LEAF if node is LEAF else _COMPUTED


def _node_of(history: int) -> Any:
    """Return the node of a tensor that arrives; a message of a context replaces it by its own."""
    if history == _CONSTANT:
        return None
    return LEAF if history == _LEAF else CutNode(next_key())


def _in_host_memory(tensor: Tensor) -> Any:
    try:
        return for_numpy(tensor.array)
    except TypeError as error:
        raise Unserializable(
            f"expected a Tensor in host memory, got one on {tensor.device}: send a copy that is "
            f"there ({error})"
        ) from error


def _from_parts(parts: list[Any], facts: Any) -> Tensor:
    if type(facts) is int:
        return wrap(parts[0], _node_of(facts))
    history, device = facts
    return arrived(_placed_here(parts[0], device), history)


def _parameter_from_parts(parts: list[Any], facts: Any) -> Parameter:
    if type(facts) is int:
        return rebuild_parameter(parts[0], facts != _CONSTANT)
    history, device = facts
    return rebuild_parameter(_placed_here(parts[0], device), history != _CONSTANT)


def arrived(array: Any, history: int, is_parameter: bool = False) -> Tensor:
    """Return a Tensor that came; a Parameter stays one, as a leaf, so that modules keep theirs."""
    if is_parameter:
        return rebuild_parameter(array, history != _CONSTANT)
    return wrap(array, _node_of(history))


def _dual_to_parts(dual: CarriedDual) -> tuple[list[Any], Any]:
    if all(isinstance(part, Tensor) and not is_cupy(part.array) for part in dual.parts):
        return [_in_host_memory(part) for part in dual.parts], [dual.facts, dual.history, None]
    arrays: list[Any] = []
    told = []
    for part in dual.parts:
        kind = kinds.find(type(part))
        assert kind is not None
        mine, metadata = kind.to_parts(part)
        arrays += mine
        told.append([kind.tag, len(mine), metadata])
    return arrays, [dual.facts, dual.history, told]


def _dual_from_parts(parts: list[Any], metadata: Any) -> CarriedDual:
    facts, history, told = metadata
    if told is None:
        return CarriedDual([wrap(array) for array in parts], facts, history)
    rest = iter(parts)
    made = []
    for tag, count, inner in told:
        kind = kinds.find_by_tag(tag, imports=False)
        if kind is None:
            raise ProtocolViolation(f"expected a kind of tensor in a dual one, got {tag!r:.100}")
        made.append(kind.from_parts(list(islice(rest, count)), inner))
    return CarriedDual(made, facts, history)
