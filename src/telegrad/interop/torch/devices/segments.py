"""A device segment: memory of a device that one process fills and another one empties.

The sender's end is an `Export`, the receiver's an `Import`. Both processes can record and wait for
two events that belong to the memory:

1. The sender's current stream waits for `emptied`, copies tensors into the segment and records
   `filled`. It sets the mark (``mark_board.py``) and sends a frame with a `Span` for each tensor,
   which says where it lies.
2. The receiver's current stream waits for `filled`, copies out into tensors of its own and records
   `emptied`. The receiver clears the mark.

Neither process waits: the device does. A later write to a sent tensor is enqueued after the copy
in; a use of a received one is enqueued after the copy out. A tensor for another device is first
copied out on the segment's device, which the events belong to, and then moved by PyTorch.

Knows neither workers nor frames. Invariant: before memory is touched, a peer's statements about a
segment are checked: number, use, place and size.
"""

import math
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Annotated, Any, Final, TypeVar

import msgspec
import torch

from telegrad.errors import DeviceError, ProtocolViolation
from telegrad.interop.torch.devices.mark_board import MARKS, MarkBoard
from telegrad.interop.torch.devices.runtime import HANDLE_BYTES, CudaFailure, Runtime
from telegrad.interop.torch.modes import run_ordinarily
from telegrad.rpc.wire.conversion import converter

# Bytes: the alignment of each tensor, as PyTorch's allocator aligns memory.
_ALIGN: Final = 256
_MOST_DIMENSIONS: Final = 64
F = TypeVar("F")
_DTYPES: Final = {name: each for name, each in vars(torch).items() if type(each) is torch.dtype}
_NAMES: Final = {each: str(each).removeprefix("torch.") for each in _DTYPES.values()}
Shape = list[Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]]
"""The lengths of a tensor's axes, as a peer may name them."""


class Span(msgspec.Struct, array_like=True, frozen=True):
    """Where a tensor lies in a segment, its dtype and shape; `use` counts the segment's fills."""

    segment: int
    use: int
    offset: int
    dtype: str
    shape: Shape


class Introduction(msgspec.Struct, array_like=True, frozen=True):
    """The description of a new segment, which its receiver is sent once."""

    segment: int
    size: int
    device: str
    """The uuid of the device."""
    memory: bytes
    filled: bytes
    emptied: bytes
    place: int
    """The index of the segment's mark on the board."""
    board: tuple[int, int, bytes]
    """The board's process, descriptor and secret."""

    def check(self) -> None:
        """Raise ProtocolViolation for values that no correct worker sends."""
        handles = (self.memory, self.filled, self.emptied)
        if any(len(each) != HANDLE_BYTES for each in handles):
            raise ProtocolViolation(f"expected handles of {HANDLE_BYTES} bytes for a segment")
        if not 0 <= self.place < MARKS or self.size <= 0 or self.segment <= 0:
            raise ProtocolViolation(
                f"expected a segment with a number, a size and one of {MARKS} marks, got segment "
                f"{self.segment} of {self.size} bytes with mark {self.place}"
            )


def checker(kind: type[F]) -> Callable[[Any], F]:
    """Return a function that makes a `kind` out of facts that a peer sent; see ``converter``.

    It raises ProtocolViolation for malformed facts.
    """
    convert = converter(kind)

    def checked(facts: Any) -> F:
        try:
            return convert(facts)
        except msgspec.ValidationError as error:
            raise ProtocolViolation(
                f"malformed facts of a device's tensor came: {error}"
            ) from error

    return checked


def nbytes_of(tensors: Sequence[torch.Tensor]) -> int:
    """Return the size in bytes of a segment for these tensors."""
    offset = 0
    for tensor in tensors:
        offset += -(-tensor.nbytes // _ALIGN) * _ALIGN
    return offset


class Export:
    """The sender's end. `device` is the index of the memory's device."""

    def __init__(
        self,
        cuda: Runtime,
        number: int,
        peer: str,
        device: int,
        size: int,
        board: MarkBoard,
        place: int,
    ) -> None:
        self._cuda = cuda
        self.number = number
        self.peer = peer
        self.device = device
        self.size = size
        self.used_at = 0.0
        self.is_taken = True
        self._board = board
        self.place = place
        self._use = 0
        self._events: list[int] = []
        with cuda.on(device):
            self._memory = cuda.allocate(size)
            try:
                self._events = [cuda.make_event(), cuda.make_event()]
            except BaseException:
                self.free()
                raise

    def introduction(self, uuid: str) -> Introduction:
        """Return the segment's description for its receiver."""
        memory = self._cuda.export_memory(self._memory)
        filled, emptied = map(self._cuda.export_event, self._events)
        whereabouts = self._board.whereabouts()
        return Introduction(
            self.number, self.size, uuid, memory, filled, emptied, self.place, whereabouts
        )

    def is_held(self) -> bool:
        """Tell whether the receiver still holds it."""
        return self._board.is_set(self.place)

    def fill(self, tensors: Sequence[torch.Tensor]) -> list[Span]:
        """Copy tensors of the device into it, on the current stream, and mark it as held."""
        cuda, (filled, emptied) = self._cuda, self._events
        spans = []
        offset = 0
        use = self._use + 1
        with cuda.on(self.device):
            stream = cuda.stream(self.device)
            if self._use:
                cuda.wait(stream, emptied)
            for tensor in tensors:
                nbytes = tensor.nbytes
                if nbytes:
                    # Referenced until the copy is enqueued, so that it is not freed before.
                    plain = dense(tensor)
                    cuda.copy(self._memory + offset, plain.data_ptr(), nbytes, stream)
                name = _NAMES[tensor.dtype]
                spans.append(Span(self.number, use, offset, name, list(tensor.shape)))
                offset += -(-nbytes // _ALIGN) * _ALIGN
            cuda.record(filled, stream)
        self._use = use
        self._board.set(self.place)
        return spans

    def free(self, *, is_shared: bool = False) -> None:
        """Free the memory. `is_shared`: the receiver may still copy out of it."""
        memory, self._memory = self._memory, 0
        events, self._events = self._events, []
        cuda = self._cuda
        steps = [partial(cuda.destroy_event, event) for event in events]
        if events and is_shared and self._use and not self.is_held():
            steps.insert(0, partial(cuda.synchronize, events[1]))
        if memory:
            steps.append(partial(cuda.free, memory))
        _give_back(cuda, self.device, steps)
        self._board.clear(self.place)


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor contiguous, strided, and without lazy conjugation, negation or zeros."""
    is_plain = tensor.layout is torch.strided and tensor.is_contiguous()
    if is_plain and not (tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor()):
        return tensor
    return run_ordinarily(partial(_made_dense, tensor))


def _made_dense(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor._is_zerotensor():
        return tensor.clone()
    return tensor.resolve_conj().resolve_neg().contiguous()


class Import:
    """The receiver's end. `device` is the index of the same device in this process."""

    def __init__(
        self, cuda: Runtime, introduction: Introduction, device: int, board: MarkBoard, of: str
    ) -> None:
        self._cuda = cuda
        self.number = introduction.segment
        self._size = introduction.size
        self._device = device
        self._here = f"cuda:{device}"
        self._board = board
        self._place = introduction.place
        self._of = of
        self._use = 0
        self._is_closed = False
        self._lock = threading.RLock()
        self._events: list[int] = []
        with cuda.on(device):
            self._memory = cuda.open_memory(introduction.memory)
            try:
                found = cuda.size_of(self._memory)
                if found < self._size:
                    raise ProtocolViolation(
                        f"worker {of!r} says that its segment {self.number} on cuda:{device} has "
                        f"{self._size} bytes, but it has {found}"
                    )
                for handle in (introduction.filled, introduction.emptied):
                    self._events.append(cuda.open_event(handle))
            except BaseException:
                self.close()
                raise

    def empty(self, spans: Sequence[Span], devices: Sequence[str]) -> list[torch.Tensor]:
        """Copy all tensors of one use out to `devices`, and clear the mark."""
        with self._lock:
            use = spans[0].use
            planned = []
            for span in spans:
                if use <= self._use or span.use != use or self._is_closed:
                    raise ProtocolViolation(
                        f"expected a use of {self._name()} after {self._use}, got {use}: the "
                        "message is stale or forged"
                    )
                planned.append(self._plan(span))
            self._use = use
            try:
                return self._copied(planned, devices)
            except CudaFailure as error:
                raise DeviceError(
                    f"expected to copy out of {self._name()}, got an error of the device, which "
                    f"may have been reset: {error}"
                ) from error
            finally:
                self._board.clear(self._place)

    def _name(self) -> str:
        return f"the segment {self.number} of worker {self._of!r} on cuda:{self._device}"

    def _plan(self, span: Span) -> tuple[int, torch.dtype, list[int], int]:
        """Return offset, dtype, shape and bytes of a span that lies in the segment."""
        dtype = _DTYPES.get(span.dtype)
        offset, shape, size = span.offset, span.shape, self._size
        if dtype is not None and len(shape) <= _MOST_DIMENSIONS:
            nbytes = math.prod(shape) * dtype.itemsize
            is_inside = offset >= 0 and offset % _ALIGN == 0 and offset + nbytes <= size
            if is_inside and min(shape, default=0) >= 0:
                return offset, dtype, shape, nbytes
        raise ProtocolViolation(
            f"expected a tensor within the {size} bytes of {self._name()}, got one of "
            f"{span.dtype[:40]!r} and shape {shape!r:.200} at byte {offset}"
        )

    def _copied(
        self, planned: Sequence[tuple[int, torch.dtype, list[int], int]], devices: Sequence[str]
    ) -> list[torch.Tensor]:
        cuda, (filled, emptied) = self._cuda, self._events
        made: list[torch.Tensor] = []
        with cuda.on(self._device):
            stream = cuda.stream(self._device)
            cuda.wait(stream, filled)
            for (offset, dtype, shape, nbytes), device in zip(planned, devices):
                tensor = allocated(shape, dtype, device, self._of, self._device)
                made.append(tensor)
                if nbytes:
                    cuda.copy(tensor.data_ptr(), self._memory + offset, nbytes, stream)
            cuda.record(emptied, stream)
        here, of = self._here, self._of
        return [each if to == here else moved(each, to, of) for each, to in zip(made, devices)]

    def close(self) -> None:
        """Unmap the memory; after this the sender may free it."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            cuda = self._cuda
            steps = [partial(cuda.synchronize, self._events[1])] if self._use else []
            steps += [partial(cuda.close_event, event) for event in self._events]
            _give_back(cuda, self._device, [*steps, partial(cuda.close_memory, self._memory)])


def _give_back(cuda: Runtime, device: int, steps: Sequence[Callable[[], None]]) -> None:
    """Take all the steps, also those after one that fails.

    After a reset of the device they all fail, but then its memory and events are gone anyway.
    """
    with cuda.on(device):
        for step in steps:
            with suppress(CudaFailure):
                step()


@lru_cache(64)
def _named(device: str) -> torch.device | None:
    """Return the CPU or a CUDA device by name; None for any other name or kind of device."""
    try:
        found = torch.device(device)
    except RuntimeError:
        return None
    return found if found.type in ("cpu", "cuda") else None


def allocated(
    shape: list[int], dtype: torch.dtype, device: str, of: str, near: int | None = None
) -> torch.Tensor:
    """Return an uninitialised tensor for data from worker `of`; DeviceError if there is no memory.

    `near`: the index of the CUDA device to allocate on instead, if `device` is another CUDA device.
    """
    place = _named(device)
    if place is None:
        raise ProtocolViolation(
            f"expected worker {of!r} to name a device of CUDA for a torch tensor, got "
            f"{device[:40]!r}"
        )
    if near is not None and place.type == "cuda" and place.index != near:
        place = torch.device("cuda", near)
    try:
        return torch.empty(shape, dtype=dtype, device=place)
    except (RuntimeError, AssertionError) as error:
        raise _no_room(shape, dtype, device, of, error) from error


def moved(tensor: torch.Tensor, device: str, of: str) -> torch.Tensor:
    """Return a tensor from worker `of` on its device; DeviceError if there is no room."""
    try:
        return tensor.to(device)
    except (RuntimeError, AssertionError) as error:
        raise _no_room(tensor.shape, tensor.dtype, device, of, error) from error


def _no_room(
    shape: Sequence[int], dtype: torch.dtype, device: str, of: str, error: Exception
) -> DeviceError:
    return DeviceError(
        f"expected room on {device!r} for a torch tensor of shape {tuple(shape)} and {dtype} "
        f"from worker {of!r}, got none; send less at a time, free memory there, or name "
        f"another device in the sender's device map (Options.device_maps) ({error})"
    )
