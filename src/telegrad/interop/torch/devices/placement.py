"""How CUDA tensors are sent in calls, results and gradients.

Within one host the tensors of a message are copied, together, through a segment of their device
(``channels.py``); otherwise, or if no segment can be had, through the host's memory
(``staging.py``, and ``values/tensors.py`` for small ones). Telegrad's own tensors on a device are
sent as torch tensors over the same memory (``cupy_arrays.py``).

Gradients need no device map: they return to the device of the tensor that they belong to.
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
    """The tensors of one device in one message, copied together when the first is serialised.

    `is_shared`: whether the receiver can open segments of the device.
    """

    __slots__ = ("_buffers", "_is_shared", "_spans", "_to", "_worker", "has_own")

    def __init__(self, worker: Worker, to: str, is_shared: bool) -> None:
        self._worker = worker
        self._to = to
        self._is_shared = is_shared
        self._buffers: list[torch.Tensor] = []
        self._spans: list[Span] | None = None
        self.has_own = False
        """Whether some of the tensors are over CuPy's memory."""

    def add(self, tensor: torch.Tensor) -> slice:
        """Add a tensor; return the indices of its buffers."""
        buffers = self._buffers
        first = len(buffers)
        if tensor.layout is _STRIDED:
            buffers.append(tensor)
        else:
            buffers += _buffers_of(tensor)
        return slice(first, len(buffers))

    def spans(self, places: slice) -> list[Span]:
        """Return where these buffers lie in a segment; an empty list if no segment took them."""
        if self._buffers and self._is_shared:
            given, self._buffers = self._buffers, []
            self._spans = CHANNELS[self._worker].pack(self._to, given)
            if self.has_own:
                # CuPy may free or overwrite its memory only after the copy.
                let_cupy_wait(given[0].device.index or 0)
        return [] if self._spans is None else self._spans[places]

    def stage(self, tensor: torch.Tensor, device: str) -> list[Transfer]:
        """Send a tensor's buffers ahead in pieces; an empty list if it is too small for that."""
        buffers = _buffers_of(tensor.detach())
        sizes = [each.nbytes for each in buffers]
        if sum(sizes) < STAGED_FROM or not all(sizes):
            return []
        send = staging_of(self._worker).send
        return [run_ordinarily(partial(send, self._to, each, device)) for each in buffers]


def _buffers_of(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    """Return the dense tensors that make up a tensor: a sparse COO one's indices and values."""
    if tensor.layout is _STRIDED:
        return (tensor,)
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    return (tensor.to_dense(),)


class Placed:
    """A CUDA tensor to be sent to a device; `load`, if any, has its buffers at `places`.

    `own` describes the telegrad Tensor that it carries, if it carries one.
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
    """How the buffers of a device's tensor were sent: in a segment, or in pieces."""

    device: str
    spans: list[Span]
    transfers: list[Transfer]
    sparse: tuple[Shape, bool] | None
    """The shape of a sparse COO tensor, and whether it is coalesced; None for a dense one."""
    own: Own | None


class Arriving(_Sent, array_like=True, frozen=True):
    """A received tensor that is still in its segment, or in the pieces of its transfer."""

    is_parameter: bool
    requires_grad: bool


class _Gradient(_Sent, array_like=True, frozen=True):
    """A sent gradient. One number that was expanded is sent alone, with the full `shape`."""

    shape: Shape | None


_as_arriving = checker(Arriving)
_as_gradients = checker(list[_Gradient])
_as_own = checker(Own)


def register() -> None:
    """Register `Placed` with the serialiser."""
    kinds.register(Placed, to_parts, from_parts, tag="torch.placed")


# Calls.


def has_own(values: list[Any]) -> bool:
    """Tell whether `carry` replaces any telegrad Tensor."""
    return "cupy" in sys.modules and through(values, lambda each: any(map(_is_own, each)))


def _is_own(value: Any) -> bool:
    # A dual one is split into parts first: ``tensor_kind.CarriedDual``.
    return isinstance(value, Tensor) and not value.tangents and can_carry(value.array)


def carry(values: list[Any], worker: Worker, to: str, is_recorded: bool = False) -> None:
    """Replace, in place, the CUDA tensors that must be sent as a `Placed`.

    In a recorded call, a telegrad Parameter that requires grad is sent as a Tensor, as on the CPU.
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
    """Replace each `Arriving` by its tensor.

    Returns:
        A function that the thread which uses the tensors must call first; None if there are none.
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
    """Makes the current stream of the calling thread wait for the stream that made the tensors."""

    def __init__(self, made: Sequence[torch.Tensor], has_own: bool) -> None:
        self._has_own = has_own
        self._made = made
        indices = {tensor.device.index or 0: None for tensor in made}
        # Asked of the runtime: torch.cuda takes twenty times as long.
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
    """Tell whether `pack` takes a gradient: a torch tensor, or a CuPy array PyTorch can use."""
    return isinstance(gradient, torch.Tensor) or can_carry(gradient)


def pack(gradients: Sequence[Any], worker: Worker, to: str) -> list[Any]:
    """Return each gradient as it is sent to a worker: a `_Gradient`, or an array.

    Gradients are torch tensors or CuPy arrays.
    """
    peer = peer_of(worker, to)
    loads: dict[torch.device, Load] = {}
    placed: list[tuple[torch.Tensor, torch.Tensor, Load, slice, Own | None]] = []
    for each in gradients:
        if placed and each is placed[-1][0]:
            # The terms of a sum have one gradient: it is sent once and arrives as several tensors.
            placed.append(placed[-1])
            continue
        own = Own(each.dtype.name) if is_cupy(each) else None
        value = each if own is None else as_torch(each)
        load = loads.get(value.device)
        if load is None:
            is_shared = peer.twin(value.device) is not None
            load = loads[value.device] = Load(worker, to, is_shared)
        load.has_own |= own is not None
        # The gradient of a sum is one number, expanded with zero strides: only that is sent.
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
    """Return a sparse COO tensor's shape and whether it is coalesced; None for a dense one."""
    if tensor.layout is not torch.sparse_coo:
        return None
    return list(tensor.shape), tensor.is_coalesced()


def _is_spread(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is one number expanded with zero strides."""
    return tensor.layout is _STRIDED and not any(tensor.stride()) and tensor.numel() > 1


def _way_back(peer: Peer, gradient: torch.Tensor) -> str | None:
    """Return the device to send a gradient to; None if it is sent as an array."""
    try:
        there, _ = peer.way(gradient)
    except DeviceError:
        # A map for tensors does not bind gradients: the receiver knows the device.
        return None
    return None if there == "cpu" else there


def unpack(facts: Sequence[Any], worker: Worker, frm: str) -> list[Any]:
    """Return the gradients that were sent in segments or in pieces."""
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
    """Return each tensor's buffers on its device, out of their segment or transfers."""
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
    """Return the tensor made up of these buffers."""
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
        # Checked, which waits for the device: with a forged index kernels could write anywhere.
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
    """Return a tensor's arrays and facts; no arrays if its buffers are sent another way."""
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
    """Return the received tensor; an `Arriving` if its buffers are not in the message."""
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
