"""By which way a CUDA tensor goes, and what carries it: calls, results, gradients.

Within one host the tensors of a message are copied, together, through a segment of their device
(``channels.py``); else, or where that can't be, through the host's memory (``staging.py``, and
``values/tensors.py`` for small ones). Telegrad's own tensors on a device go as PyTorch's do, over
the same memory (``cupy_arrays.py``).

Gradients need no map: they return to the device of the tensor that they belong to.
"""

import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, Final

import msgspec
import torch

from telegrad.arrays.cupy import is_cupy
from telegrad.distributed.contexts.tensor_kind import arrived, history_code, through
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
from telegrad.interop.torch.devices.segments import Shape, Span, checker
from telegrad.interop.torch.devices.staging import STAGED_FROM, Transfer
from telegrad.interop.torch.modes import run_ordinarily
from telegrad.interop.torch.values import tensors
from telegrad.interop.torch.values.arrays import raw
from telegrad.nn.parameter import Parameter
from telegrad.rpc.wire import kinds
from telegrad.rpc.worker import Worker
from telegrad.tensors import Tensor

_STRIDED: Final = torch.strided


class Load:
    """The tensors of one device in one message: copied together, when the first is asked for.

    `is_shared`: whether segments lead to the receiver.
    """

    __slots__ = ("_buffers", "_is_shared", "_spans", "_to", "_worker", "has_own")

    def __init__(self, worker: Worker, to: str, is_shared: bool) -> None:
        self._worker = worker
        self._to = to
        self._is_shared = is_shared
        self._buffers: list[torch.Tensor] = []
        self._spans: list[Span] | None = None
        self.has_own = False
        """Whether memory of CuPy's is among it."""

    def add(self, tensor: torch.Tensor) -> slice:
        """Enter a tensor; return the places of its buffers."""
        buffers = self._buffers
        first = len(buffers)
        if tensor.layout is _STRIDED:
            buffers.append(tensor)
        else:
            buffers += _buffers_of(tensor)
        return slice(first, len(buffers))

    def spans(self, places: slice) -> list[Span]:
        """Return where the buffers of those places lie; none if they must go another way."""
        if self._buffers and self._is_shared:
            given, self._buffers = self._buffers, []
            self._spans = CHANNELS[self._worker].pack(self._to, given)
            if self.has_own:
                # What it frees or overwrites is enqueued behind the copy.
                let_cupy_wait(given[0].device.index or 0)
        return [] if self._spans is None else self._spans[places]

    def stage(self, tensor: torch.Tensor, device: str) -> list[Transfer]:
        """Send a tensor's buffers ahead in pieces; none if it is too small for that."""
        buffers = _buffers_of(tensor.detach())
        sizes = [each.nbytes for each in buffers]
        if sum(sizes) < STAGED_FROM or not all(sizes):
            return []
        send = staging_of(self._worker).send
        return [run_ordinarily(partial(send, self._to, each, device)) for each in buffers]


def _buffers_of(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    """Return the dense tensors that hold its numbers: of a sparse COO one, indices and values."""
    if tensor.layout is _STRIDED:
        return (tensor,)
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    return (tensor.to_dense(),)


class Placed:
    """A CUDA tensor on its way to a device; `load` has it at `places` if the device copies it.

    `own`: it carries a Tensor of telegrad's own.
    """

    __slots__ = ("device", "load", "own", "places", "tensor")

    def __init__(
        self,
        tensor: torch.Tensor,
        device: str,
        load: Load | None = None,
        places: slice | None = None,
        own: Own | None = None,
    ) -> None:
        self.own = own
        self.tensor = tensor
        self.device = device
        self.load = load
        self.places = places


class _Sent(msgspec.Struct, array_like=True, frozen=True):
    """The numbers of a tensor of a device: each of its buffers went in a segment, or in pieces."""

    device: str
    spans: list[Span]
    transfers: list[Transfer]
    sparse: tuple[Shape, bool] | None
    """The shape of a sparse COO tensor, and whether it is coalesced; None for a dense one."""
    own: Own | None


class Arriving(_Sent, array_like=True, frozen=True):
    """A tensor that came in a segment and was not copied out of it yet, or came in pieces."""

    is_parameter: bool
    requires_grad: bool


class _Gradient(_Sent, array_like=True, frozen=True):
    """A gradient on its way to a device; one number that stands for many has a `shape`."""

    shape: Shape | None


_as_arriving = checker(Arriving)
_as_gradients = checker(list[_Gradient])
_as_own = checker(Own)


def register() -> None:
    """Make what travels known to the serialiser."""
    kinds.register(Placed, to_parts, from_parts, tag="torch.placed")


# Calls.


def has_own(values: list[Any]) -> bool:
    """Tell whether `carry` replaces Tensors of telegrad's own."""
    return "cupy" in sys.modules and through(values, lambda each: any(map(_is_own, each)))


def _is_own(value: Any) -> bool:
    # One with tangents goes as several, with their levels: ``tensor_kind.CarriedDual``.
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
        if there != "cpu" and (tensors.is_dense(value) or _is_sparse(value)):
            load = loads.get(value.device)
            if load is None:
                load = loads[value.device] = Load(worker, to, is_shared)
            load.has_own |= own is not None
            values[i] = Placed(value, there, load, load.add(value), own)
        elif own is not None or there != str(value.device):
            values[i] = Placed(value, there, own=own)


def _is_sparse(tensor: torch.Tensor) -> bool:
    return type(tensor) is torch.Tensor and tensor.layout is torch.sparse_coo


def arrive(values: list[Any], worker: Worker, frm: str) -> Callable[[], None] | None:
    """Replace what came in segments by tensors.

    Returns:
        What to call on the thread that takes them, before it does; None if nothing came so.
    """
    places = [i for i, value in enumerate(values) if type(value) is Arriving]
    if not places:
        return None
    came: list[Arriving] = [values[i] for i in places]
    buffers = _buffers(worker, frm, came)
    for i, arriving, own in zip(places, came, buffers):
        values[i] = _finished(_whole(own, arriving, frm), arriving, frm)
    return _Order([*chain(*buffers)], any(each.own is not None for each in came))


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
    peer = peer_of(worker, to)
    loads: dict[torch.device, Load] = {}
    placed: list[tuple[torch.Tensor, torch.Tensor, Load, slice, Own | None]] = []
    for each in gradients:
        if placed and each is placed[-1][0]:
            # As of a sum's terms: it is sent once, and arrives as two.
            placed.append(placed[-1])
            continue
        own = Own(each.dtype.name) if is_cupy(each) else None
        value = each if own is None else as_torch(each)
        load = loads.get(value.device)
        if load is None:
            is_shared = peer.twin(value.device) is not None
            load = loads[value.device] = Load(worker, to, is_shared)
        load.has_own |= own is not None
        # The gradient of a sum is one number, spread without memory: so it is sent.
        sent = value.as_strided((), ()) if _is_spread(value) else value
        placed.append((value, sent, load, load.add(sent), own))
    return [_packed(peer, *each) for each in placed]


def _packed(
    peer: Peer, value: torch.Tensor, sent: torch.Tensor, load: Load, places: slice, own: Own | None
) -> Any:
    spans = load.spans(places)
    if spans:
        shape = None if sent is value else list(value.shape)
        return _Gradient(str(peer.twin(value.device)), spans, [], _sparse(value), own, shape)
    there = _way_back(peer, value)
    transfers = [] if there is None else load.stage(value, there)
    if there is None or not transfers:
        return raw(value)
    return _Gradient(there, [], transfers, _sparse(value), own, None)


def _sparse(tensor: torch.Tensor) -> tuple[list[int], bool] | None:
    """Return what the buffers of a sparse COO tensor do not tell of it; None for a dense one."""
    if tensor.layout is not torch.sparse_coo:
        return None
    return list(tensor.shape), tensor.is_coalesced()


def _is_spread(tensor: torch.Tensor) -> bool:
    """Tell whether all of several numbers lie in one place."""
    return tensor.layout is _STRIDED and not any(tensor.stride()) and tensor.numel() > 1


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
    found: list[Any] = []
    for own, each in zip(_buffers(worker, frm, came), came):
        tensor = _spread(_whole(own, each, frm), each.shape, frm)
        found.append(tensor if each.own is None else as_array(tensor, each.own, frm))
    return found


def _spread(tensor: torch.Tensor, shape: list[int] | None, frm: str) -> torch.Tensor:
    if shape is None:
        return tensor
    if tensor.ndim or math.prod(shape) >= 2**63:
        raise ProtocolViolation(
            f"worker {frm!r} sent a gradient of shape {tuple(tensor.shape)} as one number for "
            f"{shape!r:.200}"
        )
    return tensor.expand(shape)


def _buffers(worker: Worker, frm: str, came: Sequence[_Sent]) -> list[list[torch.Tensor]]:
    """Return the buffers of each tensor that came in a segment or in pieces, on its device."""
    spans: list[Span] = []
    devices: list[str] = []
    is_usual = True
    for each in came:
        spans += each.spans
        devices += [each.device] * len(each.spans)
        is_usual &= len(each.spans) == 1 and not each.transfers
    emptied: list[torch.Tensor] = []
    if spans:
        channels = CHANNELS.get(worker)
        if channels is None:
            raise ProtocolViolation(f"worker {frm!r} names device segments, which it never sent")
        emptied = run_ordinarily(partial(channels.unpack, frm, spans, devices))
        if is_usual:
            return [[tensor] for tensor in emptied]
    rest = iter(emptied)
    found = []
    for each in came:
        buffers = list(islice(rest, len(each.spans)))
        for transfer in each.transfers:
            buffers.append(run_ordinarily(partial(staging_of(worker).take, frm, transfer)))
        found.append(buffers)
    return found


def _whole(buffers: Sequence[torch.Tensor], sent: _Sent, frm: str) -> torch.Tensor:
    """Return the tensor that has these buffers."""
    if sent.sparse is None and len(buffers) == 1:
        return buffers[0]
    if sent.sparse is None or len(buffers) != 2:
        raise ProtocolViolation(f"worker {frm!r} sent a tensor of a device in no way")
    indices, numbers = buffers
    return run_ordinarily(partial(_sparse_over, indices, numbers, *sent.sparse, frm))


def _sparse_over(
    indices: torch.Tensor, numbers: torch.Tensor, size: list[int], is_coalesced: bool, frm: str
) -> torch.Tensor:
    try:
        # Waits for the device, once: an index from elsewhere would have kernels write anywhere.
        return torch.sparse_coo_tensor(
            indices,
            numbers,
            size,
            device=numbers.device,
            is_coalesced=is_coalesced,
            check_invariants=True,
        )
    except (RuntimeError, TypeError) as error:
        raise ProtocolViolation(
            f"worker {frm!r} sent a sparse tensor of shape {size!r:.200} whose indices do not fit "
            f"({error})"
        ) from error


def to_parts(placed: Placed) -> tuple[list[Any], Any]:
    """Return what is sent of a tensor on its way: arrays, or how it goes without."""
    tensor, load, own = placed.tensor, placed.load, placed.own
    is_parameter = type(tensor) is torch.nn.Parameter
    if load is not None and placed.places is not None:
        spans = load.spans(placed.places)
        transfers = [] if spans else load.stage(tensor, placed.device)
        if spans or transfers:
            facts = placed.device, spans, transfers, _sparse(tensor), own
            return [], Arriving(*facts, is_parameter, tensor.requires_grad)
    parts, plain_facts = tensors.to_parts(tensor, placed.device)
    return parts, [is_parameter, plain_facts, own]


def from_parts(parts: list[Any], facts: Any) -> Any:
    """Return the tensor that came; an `Arriving` if that is to be fetched."""
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
