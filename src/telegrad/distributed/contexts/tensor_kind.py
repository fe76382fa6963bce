"""How a Tensor is sent: its raw array, whether it requires grad, and its tangents.

``recorder.py`` adds messages and their nodes in a context. Without a context, a leaf arrives as a
new leaf, so that parameters can be fetched and sent; a computed tensor arrives without its history,
and differentiating through it is an error (``message_nodes.CutNode``).

A dual tensor is sent as a ``CarriedDual``: primal and tangents as Tensors, and a tree that gives
the level of each tangent. Only a worker can name levels, so the worker's recorder makes and undoes
it, not the serialiser.

A tensor on a device goes through pinned host memory and arrives on the device of the same name; if
PyTorch is loaded, it is sent as PyTorch's tensors are (``interop/torch/devices``).
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
# The history of a tensor at the sender.
_CONSTANT: Final = 0
_LEAF: Final = 1
_COMPUTED: Final = 2


class CarriedDual:
    """A dual tensor on its way between two workers."""

    __slots__ = ("came", "facts", "history", "parts")

    def __init__(self, parts: list[Any], facts: list[Any], history: int = _CONSTANT) -> None:
        self.parts = parts
        """Primal and tangents: Tensors, or the objects that carry them to a device."""
        self.facts = facts
        self.history = history

    @classmethod
    def of(cls, tensor: Tensor, levels: LevelRegistry, to: str) -> "CarriedDual":
        """Return the form in which a ``snapshot`` of a dual tensor is sent to `to`."""
        arrays = [tensor.array]
        facts = levels.facts_of(tensor.tangents, to, arrays)
        return cls([wrap(array) for array in arrays], facts, history_code(tensor))

    def arrive(self, levels: LevelRegistry) -> Tensor:
        """Return the dual tensor with its tangents at this worker's levels."""
        self.came: list[Tensor] = []
        if not all(isinstance(part, Tensor) for part in self.parts):
            raise ProtocolViolation("expected the parts of a dual tensor, got other values")
        arrays = iter([part.array for part in self.parts])
        tensor = rebuilt(arrays, self.facts, levels, self.came)
        tensor.node = _node_of(self.history)
        return tensor

    def flattened(self, arrived: Tensor) -> Sequence[Tensor]:
        """Return the tensors as flattened by the sender, also tangents of levels closed since."""
        return self.came


def through(values: list[Any], replace: Callable[[list[Any]], R]) -> R:
    """Call a function that replaces values, on these and the parts of each CarriedDual."""
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
    """Return a tensor made from the next arrays, with the tangents that `facts` describes.

    Arguments:
        rest: The received arrays not used yet.
        facts: The tangents, as ``LevelRegistry.facts_of`` describes them.
        levels: This worker's levels.
        came: Takes all received tensors, in the sender's order of ``flatten``.
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
    """Return a tensor and its tangents, nested ones included, in an order both sides share."""
    if not tensor.tangents:
        return (tensor,)
    flat = [tensor]
    for level in sorted(tensor.tangents, key=lambda each: each.depth):
        flat.extend(flatten(tensor.tangents[level]))
    return flat


def snapshot(tensor: Tensor) -> Tensor:
    """Return a read-only copy of a dual tensor that keeps its tangents when levels close."""
    copy = wrap(tensor.array, tensor if tensor.node is LEAF else tensor.node)
    # In one step: another thread may close a level at any time.
    tangents = dict(tensor.tangents or {})
    copy.tangents = {level: snapshot(tangent) for level, tangent in tangents.items()}
    return copy


def register() -> None:
    """Register Tensors with the serialiser; calling it again changes nothing."""
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
    """Raise if any value needs a device map, which telegrad alone can't follow."""
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
    """Return a received array on the device that its sender named."""
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
    """Return the code for the history of a tensor to be sent."""
    node = tensor.node
    return _CONSTANT if node is None else _LEAF if node is LEAF else _COMPUTED


def _node_of(history: int) -> Any:
    """Return the node of a received tensor; in a context, the recv node replaces it."""
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
    """Return a received Tensor; a Parameter stays one, as a leaf, so that modules keep theirs."""
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
