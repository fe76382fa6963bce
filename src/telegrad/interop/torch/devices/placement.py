"""By which way a CUDA tensor goes, and what carries it: calls, results, gradients.

Within one host the tensors of a message are copied, together, through a segment of their device
(``channels.py``); else, or where that can't be, through the host's memory (``staging.py``, and
``values/tensors.py`` for small ones). Telegrad's own tensors on a device go as PyTorch's do, over
the same memory (``cupy_arrays.py``).

Gradients need no map: they return to the device of the tensor that they belong to.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
import torch

from telegrad.arrays.cupy import is_cupy
from telegrad.distributed.contexts.tensor_kind import arrived, history_code
from telegrad.errors import DeviceError, ProtocolViolation
from telegrad.interop.torch.devices.cupy_arrays import (
    Own,
    as_array,
    as_torch,
    can_carry,
    let_cupy_wait,
)
from telegrad.interop.torch.devices.peers import CHANNELS, Peer, peer_of, staging_of
from telegrad.interop.torch.devices.runtime import runtime
from telegrad.interop.torch.devices.segments import Span, checker
from telegrad.interop.torch.devices.staging import STAGED_FROM, Transfer
from telegrad.interop.torch.modes import run_ordinarily
from telegrad.interop.torch.values import tensors
from telegrad.interop.torch.values.arrays import raw
from telegrad.interop.torch.values.levels import is_open, tangent_of
from telegrad.nn.parameter import Parameter
from telegrad.rpc.wire import kinds
from telegrad.rpc.worker import Worker
from telegrad.tensors import Tensor

__all__ = [
    "Arriving",
    "Placed",
    "arrive",
    "carries",
    "carry",
    "has_own",
    "pack",
    "register",
    "unpack",
]


class Load:
    """The tensors of one device in one message: copied together, when the first is asked for.

    `is_shared`: whether segments lead to the receiver.
    """

    __slots__ = ("_is_shared", "_spans", "_tensors", "_to", "_worker", "has_own")

    def __init__(self, worker: Worker, to: str, is_shared: bool) -> None:
        self._worker = worker
        self._to = to
        self._is_shared = is_shared
        self._tensors: list[torch.Tensor] = []
        self._spans: list[Span] | None = None
        self.has_own = False
        """Whether memory of CuPy's is among it."""

    def add(self, tensor: torch.Tensor) -> int:
        """Enter a tensor; return its place."""
        self._tensors.append(tensor)
        return len(self._tensors) - 1

    def span(self, place: int) -> Span | None:
        """Return where the tensor of that place lies; None if it must go another way."""
        if self._tensors and self._is_shared:
            given, self._tensors = self._tensors, []
            self._spans = run_ordinarily(partial(CHANNELS[self._worker].pack, self._to, given))
            if self.has_own:
                # What it frees or overwrites is enqueued behind the copy.
                let_cupy_wait(given[0].device.index or 0)
        return None if self._spans is None else self._spans[place]

    def stage(self, tensor: torch.Tensor, device: str) -> Transfer | None:
        """Send a tensor ahead in pieces; None if it is too small for that."""
        if tensor.nbytes < STAGED_FROM:
            return None
        return run_ordinarily(
            partial(staging_of(self._worker).send, self._to, tensor.detach(), device)
        )


class Placed:
    """A CUDA tensor on its way to a device; `load` has it at `place` if the device copies it.

    `own`: it carries a Tensor of telegrad's own.
    """

    __slots__ = ("device", "load", "own", "place", "tensor")

    def __init__(
        self,
        tensor: torch.Tensor,
        device: str,
        load: Load | None = None,
        place: int = 0,
        own: Own | None = None,
    ) -> None:
        self.own = own
        self.tensor = tensor
        self.device = device
        self.load = load
        self.place = place


class Arriving(msgspec.Struct, array_like=True, frozen=True):
    """A tensor that came in a segment and was not copied out of it yet, or came in pieces."""

    is_parameter: bool
    requires_grad: bool
    device: str
    span: Span | None
    transfer: Transfer | None = None
    own: Own | None = None


class _Gradient(msgspec.Struct, array_like=True, frozen=True):
    """A gradient on its way to a device: in a segment, or in pieces; one number has a `shape`."""

    device: str
    shape: list[Annotated[int, msgspec.Meta(ge=0)]] | None
    span: Span | None
    transfer: Transfer | None = None
    own: Own | None = None


_as_arriving = checker(Arriving)
_as_gradients = checker(list[_Gradient])
_as_own = checker(Own)


def register() -> None:
    """Make what travels known to the serialiser."""
    kinds.register(Placed, _to_parts, _from_parts, tag="torch.placed")


# Calls.


def has_own(values: list[Any]) -> bool:
    """Tell whether `carry` replaces Tensors of telegrad's own."""
    return "cupy" in sys.modules and any(map(_is_own, values))


def _is_own(value: Any) -> bool:
    # Tangents go with their levels, through the host's memory: ``tensor_kind.CarriedDual``.
    return isinstance(value, Tensor) and not value.tangents and can_carry(value.array)


def carry(values: list[Any], worker: Worker, to: str, is_recorded: bool = False) -> None:
    """Replace CUDA tensors by what travels, where it is not the tensor itself.

    Where it `is_recorded` a Parameter of telegrad's own goes as a Tensor, as it does otherwise.
    """
    peer: Peer | None = None
    loads: dict[torch.device, Load] = {}
    for i, value in enumerate(values):
        own = None
        if _is_own(value):
            is_parameter = isinstance(value, Parameter)
            is_parameter = is_parameter and not (is_recorded and value.requires_grad)
            own = Own(value.dtype.name, history_code(value), is_parameter)
            value = as_torch(value.array)
        elif not isinstance(value, torch.Tensor) or not value.is_cuda:
            continue
        if peer is None:
            peer = peer_of(worker, to)
        there, is_shared = peer.way(value)
        is_dual = is_open() and tangent_of(value) is not None
        if there != "cpu" and tensors.is_dense(value) and not is_dual:
            load = loads.get(value.device)
            if load is None:
                load = loads[value.device] = Load(worker, to, is_shared)
            load.has_own |= own is not None
            values[i] = Placed(value, there, load, load.add(value), own)
        elif own is not None or there != str(value.device):
            values[i] = Placed(value, there, own=own)


def arrive(values: list[Any], worker: Worker, frm: str) -> Callable[[], None] | None:
    """Replace what came in segments by tensors.

    Returns:
        What to call on the thread that takes them, before it does; None if nothing came so.
    """
    places = [i for i, value in enumerate(values) if type(value) is Arriving]
    if not places:
        return None
    came: list[Arriving] = [values[i] for i in places]
    made = _unpacked(worker, frm, [(each.device, each.span or each.transfer) for each in came])
    for i, arriving, tensor in zip(places, came, made):
        values[i] = _finished(tensor, arriving, frm)
    return _Order(made, any(each.own is not None for each in came))


_external_stream: Any = torch.cuda.ExternalStream


class _Order:
    """Has the current stream of the thread that takes tensors wait for the one that made them."""

    def __init__(self, made: Sequence[torch.Tensor], has_own: bool) -> None:
        self._has_own = has_own
        self._made = made
        indices = {tensor.device.index or 0: None for tensor in made}
        # As the runtime knows them: torch.cuda takes twenty times as long to tell.
        self._streams = {index: runtime().stream(index) for index in indices}

    def __call__(self) -> None:
        for index, stream in self._streams.items():
            if runtime().stream(index) != stream:
                self._wait(index, stream)
            if self._has_own:
                let_cupy_wait(index, stream)

    def _wait(self, index: int, stream: int) -> None:
        taker = torch.cuda.current_stream(index)
        maker = torch.cuda.default_stream(index) if not stream else _external_stream(stream, index)
        taker.wait_stream(maker)
        for tensor in self._made:
            if tensor.device == taker.device:
                tensor.record_stream(taker)


# Gradients.


def carries(gradient: Any) -> bool:
    """Tell whether a gradient is PyTorch's, or an array of CuPy's that goes as those do."""
    return isinstance(gradient, torch.Tensor) or can_carry(gradient)


def pack(gradients: Sequence[Any], worker: Worker, to: str) -> list[Any]:
    """Return what carries each gradient to a worker: a `_Gradient`, or an array.

    Gradients are torch tensors, or arrays of CuPy's.
    """
    packed: list[Any] = []
    peer = peer_of(worker, to)
    loads: dict[torch.device, Load] = {}
    placed: list[tuple[torch.Tensor, Load, int]] = []
    owns = [Own(each.dtype.name) if is_cupy(each) else None for each in gradients]
    values = [each if own is None else as_torch(each) for each, own in zip(gradients, owns)]
    for value, own in zip(values, owns):
        load = loads.get(value.device)
        if load is None:
            is_shared = peer.twin(value.device) is not None
            load = loads[value.device] = Load(worker, to, is_shared)
        load.has_own |= own is not None
        # The gradient of a sum is one number, spread without memory: so it is sent.
        sent = value.as_strided((), ()) if _is_spread(value) else value
        placed.append((sent, load, load.add(sent)))
    for value, own, (sent, load, place) in zip(values, owns, placed):
        shape = None if sent is value else list(value.shape)
        span = load.span(place)
        if span is not None:
            packed.append(_Gradient(str(peer.twin(value.device)), shape, span, None, own))
            continue
        there = _way_back(peer, value)
        transfer = None if there is None else load.stage(value, there)
        if there is None or transfer is None:
            packed.append(raw(value))
        else:
            packed.append(_Gradient(there, None, None, transfer, own))
    return packed


def _is_spread(tensor: torch.Tensor) -> bool:
    """Tell whether all of several numbers lie in one place."""
    return tensor.layout is torch.strided and not any(tensor.stride()) and tensor.numel() > 1


def _way_back(peer: Peer, gradient: torch.Tensor) -> str | None:
    """Return the device to send a gradient to; None if it goes as an array."""
    try:
        there, _ = peer.way(gradient)
    except DeviceError:
        # Where it belongs is found out there: a map for tensors does not bind gradients.
        return None
    return None if there == "cpu" else there


def unpack(facts: Sequence[Any], worker: Worker, frm: str) -> list[Any]:
    """Return the gradients that came in segments, or in pieces."""
    came = _as_gradients(facts)
    made = _unpacked(worker, frm, [(each.device, each.span or each.transfer) for each in came])
    whole = [_spread(tensor, each.shape, frm) for tensor, each in zip(made, came)]
    return [
        tensor if each.own is None else as_array(tensor, each.own, frm)
        for tensor, each in zip(whole, came)
    ]


def _spread(tensor: torch.Tensor, shape: list[int] | None, frm: str) -> torch.Tensor:
    if shape is None:
        return tensor
    if tensor.ndim:
        raise ProtocolViolation(
            f"worker {frm!r} sent a gradient of shape {tuple(tensor.shape)} as one number"
        )
    return tensor.expand(shape)


def _unpacked(
    worker: Worker, frm: str, came: Sequence[tuple[str, Span | Transfer | None]]
) -> list[torch.Tensor]:
    """Return tensors of these devices, of which each came in a segment or in pieces."""
    in_segments = [(device, what) for device, what in came if isinstance(what, Span)]
    emptied: list[torch.Tensor] = []
    if in_segments:
        channels = CHANNELS.get(worker)
        if channels is None:
            raise ProtocolViolation(f"worker {frm!r} names device segments, which it never sent")
        spans = [span for _, span in in_segments]
        devices = [device for device, _ in in_segments]
        emptied = run_ordinarily(partial(channels.unpack, frm, spans, devices))
    rest = iter(emptied)
    made = []
    for _, what in came:
        if isinstance(what, Transfer):
            made.append(run_ordinarily(partial(staging_of(worker).take, frm, what)))
        elif what is None:
            raise ProtocolViolation(f"worker {frm!r} sent a tensor of a device in no way")
        else:
            made.append(next(rest))
    return made


def _to_parts(placed: Placed) -> tuple[list[Any], Any]:
    tensor = placed.tensor
    is_parameter = type(tensor) is torch.nn.Parameter
    span = None if placed.load is None else placed.load.span(placed.place)
    transfer = None
    if span is None and placed.load is not None:
        transfer = placed.load.stage(tensor, placed.device)
    if span is not None or transfer is not None:
        is_leaf = tensor.requires_grad
        return [], Arriving(is_parameter, is_leaf, placed.device, span, transfer, placed.own)
    parts, facts = tensors.to_parts(tensor, placed.device)
    return parts, [is_parameter, facts, placed.own]


def _from_parts(parts: list[Any], facts: Any) -> Any:
    if not parts:
        return _as_arriving(facts)
    is_parameter, inner, own = facts
    if own is not None:
        return _own(tensors.from_parts(parts, inner), _as_own(own), "?")
    return (tensors.parameter_from_parts if is_parameter else tensors.from_parts)(parts, inner)


def _own(tensor: torch.Tensor, own: Own, frm: str) -> Tensor:
    return arrived(as_array(tensor, own, frm), own.history, own.is_parameter)


def _finished(tensor: torch.Tensor, arriving: Arriving, frm: str) -> Any:
    if arriving.own is not None:
        return _own(tensor, arriving.own, frm)
    if arriving.is_parameter:
        requires_grad = arriving.requires_grad
        return run_ordinarily(lambda: torch.nn.Parameter(tensor, requires_grad=requires_grad))
    return tensor.requires_grad_() if arriving.requires_grad else tensor
