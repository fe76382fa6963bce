"""Send CUDA tensors through the host's memory: between hosts, or where no segment can be had.

A large tensor is sent in pieces, ahead of the message that names it, so that three things overlap:
one piece is copied from the device into pinned memory, the one before it is on the wire, and the
one before that is copied to the other device. A few pinned buffers are used in turns; the receiver
also reads pieces from the socket into pinned memory.

1. The sender numbers the transfer, sends each piece as soon as the device has copied it, and waits
   for the answers to all of them. Then it sends the message.
2. The receiver allocates the tensor when the first piece arrives and copies each piece to its
   place. The message takes it. If none does, it is dropped after a while, or with its sender.

Invariant: a tensor is taken once, whole, by a message of the worker that sent it; its memory is no
larger than its shape and dtype account for.
"""

import collections
import itertools
import math
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import numpy as np
import torch

from telegrad.errors import ProtocolViolation
from telegrad.interop.torch.devices.segments import Shape, allocated, checker, dense
from telegrad.rpc.calls.call import Call
from telegrad.rpc.calls.service import ServiceRequest
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.worker import Worker

STAGED_FROM: Final = 1 << 20
"""Bytes: a smaller tensor is as fast in the message itself."""
PIECE: Final = (4 << 20) - (4 << 10)
"""Bytes of a piece: with its header it fits in 4 MiB, a block size of PyTorch's pinned memory."""
_MOST_RECEIVED: Final = 16
"""The most received messages in pinned memory at a time."""
_PINNED: Final = 4  # The sender's pinned buffers.
_MOST_UNANSWERED: Final = 8
_PATIENCE: Final = 120.0  # Seconds after which a tensor that no message took is dropped.
_SERVICE: Final = "torch.staging.piece"


class Transfer(msgspec.Struct, array_like=True, frozen=True):
    """A tensor that was sent in pieces, and its device at the receiver."""

    number: int
    device: str
    dtype: str
    shape: Shape

    def check(self) -> tuple[torch.dtype, int]:
        """Return its dtype and size in bytes; ProtocolViolation if either is invalid."""
        dtype: Any = getattr(torch, self.dtype, None)
        if (
            isinstance(dtype, torch.dtype)
            and len(self.shape) <= 64
            and min(self.shape, default=1) > 0
        ):
            return dtype, math.prod(self.shape) * dtype.itemsize
        raise ProtocolViolation(
            f"expected a dtype and a shape of a staged tensor, got {self.dtype[:40]!r} and "
            f"{self.shape!r:.200}"
        )


_as_piece = checker(tuple[Transfer, int])


def pieces(nbytes: int) -> Iterator[tuple[int, int]]:
    """Return where each piece begins and ends."""
    for start in range(0, nbytes, PIECE):
        yield start, min(start + PIECE, nbytes)


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in the host's memory: pinned memory, if it is large, for a faster copy."""
    if not tensor.is_cuda or tensor.layout is not torch.strided or tensor.nbytes < STAGED_FROM:
        return tensor.cpu()
    plain = dense(tensor)
    return torch.empty_like(plain, device="cpu", pin_memory=True).copy_(plain)


class _Partial:
    """A tensor whose pieces are arriving."""

    def __init__(self, nbytes: int, memory: torch.Tensor) -> None:
        self.memory = memory
        self.missing = nbytes
        self.starts: set[int] = set()
        """The first byte of each piece that has arrived, copied or not."""
        self.since = time.monotonic()
        self.under_way: list[tuple[torch.cuda.Event, np.ndarray[Any, Any]]] = []
        """Copies to the device, and their source arrays, which must live until they are done."""

    def copy(self, start: int, array: "np.ndarray[Any, Any]") -> None:
        """Begin to copy a piece to its place."""
        place = self.memory[start : start + array.nbytes]
        place.copy_(torch.from_numpy(array), non_blocking=True)
        if place.is_cuda:
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(place.device))
            self.under_way.append((event, array))

    def finish(self) -> None:
        """Wait until all copies are done, so that every stream sees the data."""
        for event, _ in self.under_way:
            event.synchronize()
        self.under_way.clear()


class ReceiveBuffers:
    """Memory for received messages: pinned for those of a piece's size, for faster device copies.

    Only few are pinned at a time, since programs may keep arrays, or send others of this size;
    any more get plain memory.
    """

    def __init__(self, plain: Callable[[int], memoryview]) -> None:
        self._plain = plain
        self._lent: set[object] = set()

    def __call__(self, nbytes: int) -> memoryview:
        """Return a buffer of so many bytes."""
        if not PIECE <= nbytes <= 4 << 20 or len(self._lent) >= _MOST_RECEIVED:
            return self._plain(nbytes)
        try:
            memory = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True).numpy()
        except RuntimeError:
            # No pinned memory left, or no device. It only serves speed.
            return self._plain(nbytes)
        one = object()
        self._lent.add(one)
        weakref.finalize(memory, self._lent.discard, one).atexit = False
        return memory.data


class Staging:
    """One worker's transfers, in both directions."""

    def __init__(self, worker: Worker) -> None:
        # Weak, since the worker's services refer to this object.
        self._worker: Worker = weakref.proxy(worker)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._came: dict[tuple[str, int], _Partial] = {}
        """Tensors not taken yet, by sender and number."""
        worker.register_service(_SERVICE, self._on_piece)
        worker.on_worker_lost(self._on_lost)
        worker.on_close(self._came.clear)
        if torch.cuda.is_available():
            worker.host.memory = ReceiveBuffers(worker.host.memory)

    def send(self, to: str, tensor: torch.Tensor, device: str) -> Transfer:
        """Send a tensor to a device of a worker; return its description for the message."""
        plain = dense(tensor)
        flat = plain.reshape(-1).view(torch.uint8)
        dtype = str(plain.dtype).removeprefix("torch.")
        transfer = Transfer(next(self._numbers), device, dtype, list(plain.shape))
        deadline = self._worker.outgoing.deadline(None)
        unanswered: collections.deque[Call] = collections.deque()
        for start, array in _copied(flat):
            if len(unanswered) >= _MOST_UNANSWERED:
                unanswered.popleft().wait()
            # The pinned buffer may be filled again when this returns: the piece has been written.
            header = [transfer, start]
            unanswered.append(
                self._worker.outgoing.service(to, _SERVICE, header, (array,), deadline, waits=False)
            )
        for call in unanswered:
            call.wait()
        return transfer

    def take(self, frm: str, transfer: Transfer) -> torch.Tensor:
        """Remove and return a tensor that has arrived whole."""
        dtype, nbytes = transfer.check()
        with self._lock:
            found = self._came.pop((frm, transfer.number), None)
        if found is None or found.missing or found.memory.nbytes != nbytes:
            raise ProtocolViolation(
                f"worker {frm!r} names the staged tensor {transfer.number}, which it never sent "
                f"whole to {transfer.device}"
            )
        found.finish()
        return found.memory.view(dtype).reshape(transfer.shape)

    def _on_piece(self, request: ServiceRequest) -> None:
        header, start = _as_piece(request.header)
        frm = request.frm.name
        _, nbytes = header.check()
        (array,) = request.arrays
        end = start + array.nbytes
        is_piece = 0 <= start < nbytes and start % PIECE == 0 and end == min(start + PIECE, nbytes)
        if array.dtype != np.uint8 or not is_piece:
            raise ProtocolViolation(
                f"worker {frm!r} sent bytes {start} to {end} of a staged tensor of {nbytes} bytes, "
                "which are no piece of it"
            )
        self._drop_stale()
        with self._lock:
            found = self._came.get((frm, header.number))
            if found is None:
                memory = allocated([nbytes], torch.uint8, header.device, frm)
                found = self._came[frm, header.number] = _Partial(nbytes, memory)
            if start in found.starts or found.memory.nbytes != nbytes:
                # Counted twice, this piece would make up for a missing one.
                raise ProtocolViolation(
                    f"worker {frm!r} sent bytes {start} to {end} of its staged tensor "
                    f"{header.number} again, or of another size"
                )
            found.starts.add(start)
        found.copy(start, array)
        with self._lock:
            found.missing -= array.nbytes
        request.reply(None)

    def _drop_stale(self) -> None:
        oldest = time.monotonic() - _PATIENCE
        with self._lock:
            for key in [key for key, each in self._came.items() if each.since < oldest]:
                del self._came[key]

    def _on_lost(self, who: WorkerInfo, error: BaseException) -> Callable[[], object]:
        with self._lock:
            gone = [self._came.pop(key) for key in list(self._came) if key[0] == who.name]
        # Freed when that is called, outside of the lock of the peers.
        return gone.clear


def _copied(flat: torch.Tensor) -> Iterator[tuple[int, "np.ndarray[Any, Any]"]]:
    """Yield each piece's first byte and its array, valid until the next piece is requested.

    Copies of the next few pieces run ahead.
    """
    if not flat.is_cuda:
        for start, end in pieces(flat.numel()):
            yield start, flat[start:end].numpy()
        return
    buffers = [torch.empty(PIECE, dtype=torch.uint8, pin_memory=True) for _ in range(_PINNED)]
    ways = list(pieces(flat.numel()))
    events: list[torch.cuda.Event] = []

    def begin(number: int) -> None:
        start, end = ways[number]
        buffers[number % _PINNED][: end - start].copy_(flat[start:end], non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(flat.device))
        events.append(event)

    for number in range(min(_PINNED, len(ways))):
        begin(number)
    for number, (start, end) in enumerate(ways):
        events[number].synchronize()
        yield start, buffers[number % _PINNED][: end - start].numpy()
        if number + _PINNED < len(ways):
            begin(number + _PINNED)
