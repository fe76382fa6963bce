"""A device segment: memory of a device that one process fills and another one empties.

The sender's end is an `Export`, the receiver's an `Import`. Two events go with the memory, which
both processes may record and wait for:

1. The sender's current stream waits for `emptied`, copies tensors into the segment and records
   `filled`. The mark is set (``mark_board.py``), and a frame names what lies where: a `Span` for
   each tensor.
2. The receiver's current stream waits for `filled`, copies out into tensors of its own and records
   `emptied`. The mark is cleared.

Neither process waits: the device does. What a program writes to a tensor after it was sent is
enqueued after the copy; what it does with one that came is enqueued after that copy. What is to
arrive on another device than the segment's is copied out on the latter, whose events these are, and
goes on from there as PyTorch takes tensors from device to device.

Knows neither workers nor frames. Invariant: what a peer says of a segment is checked before memory
is touched: number, use, place and size.
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

# Bytes: where each tensor begins, so that kernels that read it are as fast as ever.
_ALIGN: Final = 256
_MOST_DIMENSIONS: Final = 64
F = TypeVar("F")
_DTYPES: Final = {name: each for name, each in vars(torch).items() if type(each) is torch.dtype}
_NAMES: Final = {each: str(each).removeprefix("torch.") for each in _DTYPES.values()}
Shape = list[Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]]
"""The lengths of a tensor's axes, as a peer may name them."""


class Span(msgspec.Struct, array_like=True, frozen=True):
    """Where a tensor lies in a segment, and what it is; `use` counts how often it was filled."""

    segment: int
    use: int
    offset: int
    dtype: str
    shape: Shape


class Introduction(msgspec.Struct, array_like=True, frozen=True):
    """What a receiver is told of a new segment, once."""

    segment: int
    size: int
    device: str
    """The uuid of the device."""
    memory: bytes
    filled: bytes
    emptied: bytes
    place: int
    """Which mark of the board is this one's."""
    board: tuple[int, int, bytes]
    """The board's process, descriptor and secret."""

    def check(self) -> None:
        """Raise ProtocolViolation for one that no worker of ours sends."""
        handles = (self.memory, self.filled, self.emptied)
        if any(len(each) != HANDLE_BYTES for each in handles):
            raise ProtocolViolation(f"expected handles of {HANDLE_BYTES} bytes for a segment")
        if not 0 <= self.place < MARKS or self.size <= 0 or self.segment <= 0:
            raise ProtocolViolation(
                f"expected a segment with a number, a size and one of {MARKS} marks, got segment "
                f"{self.segment} of {self.size} bytes with mark {self.place}"
            )


def checker(kind: type[F]) -> Callable[[Any], F]:
    """Return what makes a `kind` of facts that a peer sent; see ``converter``.

    It raises ProtocolViolation if they are none.
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
    """Return how large a segment for the tensors must be."""
    offset = 0
    for tensor in tensors:
        offset += -(-tensor.nbytes // _ALIGN) * _ALIGN
    return offset


class Export:
    """The sender's end. `device` is the index of the device whose memory it is."""

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
        """Return what the receiver needs to know of it."""
        memory = self._cuda.export_memory(self._memory)
        filled, emptied = map(self._cuda.export_event, self._events)
        whereabouts = self._board.whereabouts()
        return Introduction(
            self.number, self.size, uuid, memory, filled, emptied, self.place, whereabouts
        )

    def is_held(self) -> bool:
        """Say whether the receiver has it."""
        return self._board.is_set(self.place)

    def fill(self, tensors: Sequence[torch.Tensor]) -> list[Span]:
        """Copy tensors of its device into it, on the current stream; hand it to the receiver."""
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
                    # Kept until the copy is enqueued: what is freed before may be given to others.
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
        """Give the memory back. `is_shared`: the receiver may still copy out of it."""
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
    """Return the tensor with its numbers as they are, one after the other."""
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
        """Return tensors of those devices with what the spans of one use name; let it go."""
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
        """Undo the mapping; the sender may free the memory then."""
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

    A device that was reset refuses them: what was there is gone with it.
    """
    with cuda.on(device):
        for step in steps:
            with suppress(CudaFailure):
                step()


@lru_cache(64)
def _named(device: str) -> torch.device | None:
    """Return a device by its name; None for those others of PyTorch's that hold no numbers."""
    try:
        found = torch.device(device)
    except RuntimeError:
        return None
    return found if found.type in ("cpu", "cuda") else None


def allocated(
    shape: list[int], dtype: torch.dtype, device: str, of: str, near: int | None = None
) -> torch.Tensor:
    """Return memory for a tensor from worker `of`; DeviceError if there is none.

    `near`: the index of the device where it is to be first, if `device` is another one of CUDA.
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
