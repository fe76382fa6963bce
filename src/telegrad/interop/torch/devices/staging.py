"""Tensors of a device through the host's memory: between hosts, or where no segment can be had.

A large tensor goes in pieces, ahead of the message that names it, so that three things happen at
once: one piece is copied from the device into pinned memory, the one before it is on the wire, and
the one before that is copied to the other device. The pinned pieces are few, and used in turns;
what comes over a socket is received into pinned memory, too.

1. The sender gives the transfer a number, sends each piece as soon as the device has copied it, and
   waits until all have been answered: then the message may go.
2. The receiver makes the tensor when the first piece comes and copies each to its place. The
   message takes it out. What no message asked for goes when its sender is lost, or after a while.

Invariant: a tensor is taken once, whole, by a message of the worker that sent it; nothing is
allocated for more bytes than its shape and dtype account for.
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
"""Bytes: below, one frame with the message is as fast."""
PIECE: Final = (4 << 20) - (4 << 10)
"""Bytes of a piece: its message takes 4 MB, what PyTorch gives out of pinned memory at once."""
_MOST_RECEIVED: Final = 16
"""How many messages lie in pinned memory at most, where they were received."""
_PINNED: Final = 4  # How many pieces of pinned memory take turns.
_MOST_UNANSWERED: Final = 8
_PATIENCE: Final = 120.0  # Seconds after which what no message asked for goes.
_SERVICE: Final = "torch.staging.piece"


class Transfer(msgspec.Struct, array_like=True, frozen=True):
    """A tensor that was sent in pieces, and the device where it is to be."""

    number: int
    device: str
    dtype: str
    shape: Shape

    def check(self) -> tuple[torch.dtype, int]:
        """Return its dtype and how many bytes it has; ProtocolViolation if it makes no sense."""
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
    """Return the tensor in the host's memory; what is large is copied to pinned memory at once."""
    if not tensor.is_cuda or tensor.layout is not torch.strided or tensor.nbytes < STAGED_FROM:
        return tensor.cpu()
    plain = dense(tensor)
    return torch.empty_like(plain, device="cpu", pin_memory=True).copy_(plain)


class _Partial:
    """A tensor of which pieces have come."""

    def __init__(self, nbytes: int, memory: torch.Tensor) -> None:
        self.memory = memory
        self.missing = nbytes
        self.starts: set[int] = set()
        """Where the pieces begin that have come, or are being copied."""
        self.since = time.monotonic()
        self.under_way: list[tuple[torch.cuda.Event, np.ndarray[Any, Any]]] = []
        """Copies to the device, and what they copy from: it must stay until they are done."""

    def copy(self, start: int, array: "np.ndarray[Any, Any]") -> None:
        """Begin to copy a piece to its place."""
        place = self.memory[start : start + array.nbytes]
        place.copy_(torch.from_numpy(array), non_blocking=True)
        if place.is_cuda:
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(place.device))
            self.under_way.append((event, array))

    def finish(self) -> None:
        """Wait until all copies are done: then it is there for every stream."""
        for event, _ in self.under_way:
            event.synchronize()
        self.under_way.clear()


class ReceiveBuffers:
    """Memory for messages of the size of a piece: pinned, so that the device copies from there.

    Few at a time: what is kept of them for long, or is none of ours, leaves the rest to plain
    memory.
    """

    def __init__(self, plain: Callable[[int], memoryview]) -> None:
        self._plain = plain
        self._lent: set[object] = set()

    def __call__(self, nbytes: int) -> memoryview:
        """Return so many bytes."""
        if not PIECE <= nbytes <= 4 << 20 or len(self._lent) >= _MOST_RECEIVED:
            return self._plain(nbytes)
        try:
            memory = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True).numpy()
        except RuntimeError:
            # There is none left, or no device: it is for speed alone.
            return self._plain(nbytes)
        one = object()
        self._lent.add(one)
        weakref.finalize(memory, self._lent.discard, one).atexit = False
        return memory.data


class Staging:
    """One worker's transfers, in both directions."""

    def __init__(self, worker: Worker) -> None:
        # Weakly: the worker's services hold this.
        self._worker: Worker = weakref.proxy(worker)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._came: dict[tuple[str, int], _Partial] = {}
        """By sender and number."""
        worker.register_service(_SERVICE, self._on_piece)
        worker.on_worker_lost(self._on_lost)
        worker.on_close(self._came.clear)
        if torch.cuda.is_available():
            worker.host.memory = ReceiveBuffers(worker.host.memory)

    def send(self, to: str, tensor: torch.Tensor, device: str) -> Transfer:
        """Send a tensor to a device of a worker; return what its message has to say of it."""
        plain = dense(tensor)
        flat = plain.reshape(-1).view(torch.uint8)
        dtype = str(plain.dtype).removeprefix("torch.")
        transfer = Transfer(next(self._numbers), device, dtype, list(plain.shape))
        deadline = self._worker.outgoing.deadline(None)
        unanswered: collections.deque[Call] = collections.deque()
        for start, array in _copied(flat):
            if len(unanswered) >= _MOST_UNANSWERED:
                unanswered.popleft().wait()
            # It has left the pinned memory when this returns: that may be filled again.
            header = [transfer, start]
            unanswered.append(
                self._worker.outgoing.service(to, _SERVICE, header, (array,), deadline, waits=False)
            )
        for call in unanswered:
            call.wait()
        return transfer

    def take(self, frm: str, transfer: Transfer) -> torch.Tensor:
        """Return a tensor whose pieces have come."""
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
                # Counted twice, it would stand for one that never came.
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
        # Freed there: not under the lock of the peers.
        return gone.clear


def _copied(flat: torch.Tensor) -> Iterator[tuple[int, "np.ndarray[Any, Any]"]]:
    """Return each piece's place and its bytes, which are valid until the next is asked for.

    Some pieces ahead of that are being copied.
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
