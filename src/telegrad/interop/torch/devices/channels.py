"""A worker's device segments: those it fills for others, and those that others fill for it.

A segment belongs to one sender and one receiver. The sender allocates it, *introduces* it (the
receiver opens it and says so, or says why it can't), and from then on refers to it by number. If
the receiver refused, the pool is full, or the device is out of memory, tensors go through the
host's memory instead: `pack` returns None. A refusal is logged once for each receiver.

Segments are freed when they have been unused for a while, when their receiver is lost, and when the
worker shuts down; a receiver closes its end before the memory is freed. A forked process frees
nothing: the segments that it inherited are its parent's.
"""

import itertools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import torch

from telegrad.errors import DeviceError, PeerError, ProtocolViolation, UsageError
from telegrad.interop.torch.devices.mark_board import MARKS, MarkBoard
from telegrad.interop.torch.devices.runtime import CudaFailure, Runtime
from telegrad.interop.torch.devices.segment_pool import SegmentPool
from telegrad.interop.torch.devices.segments import (
    Export,
    Import,
    Introduction,
    Span,
    checker,
    nbytes_of,
)
from telegrad.rpc.calls.service import ServiceRequest
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.worker import Worker

_log = logging.getLogger("telegrad.rpc")

INTRODUCE: Final = "torch.segments.introduce"
WITHDRAW: Final = "torch.segments.withdraw"
# Seconds between searches for idle segments.
_TICK: Final = 5.0
# Seconds that a worker waits at shutdown for receivers to empty their segments.
_LONGEST_GOODBYE: Final = 0.5
# A message not read within this many call timeouts counts as abandoned.
_TIMEOUTS: Final = 2.0
_LEAST_PATIENCE: Final = 120.0  # Seconds, where calls have no timeout.


_as_introduction = checker(Introduction)
_as_numbers = checker(list[int])


class _Receiver:
    """A sender's state for one receiver."""

    def __init__(self) -> None:
        self.board = MarkBoard.make()
        self.places = list(range(MARKS - 1, -1, -1))
        """The marks that are not assigned to a segment."""


class Channels:
    """One worker's ends, in both directions."""

    def __init__(self, worker: Worker, cuda: Runtime) -> None:
        # Weak, since the worker's services refer to this object.
        self._worker: Worker = weakref.proxy(worker)
        self.cuda = cuda
        """The CUDA runtime."""
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._pools: dict[int, SegmentPool[Export]] = {}
        """By the index of the device."""
        self._receivers: dict[str, _Receiver] = {}
        self.refusals: dict[str, str] = {}
        """The reasons of receivers that take no segments, by name."""
        self._imports: dict[str, dict[int, Import]] = {}
        """By the name of the sender, and the number of the segment."""
        self._boards: dict[bytes, MarkBoard] = {}
        """The senders' boards, by secret."""
        self._timer: threading.Timer | None = None
        self._is_closed = False
        self.uuids = cuda.uuids()
        worker.register_service(INTRODUCE, self._on_introduce)
        worker.register_service(WITHDRAW, self._on_withdraw)
        worker.on_worker_lost(self._on_lost)
        worker.on_close(self.close)

    # Sending.

    def pack(self, to: str, tensors: Sequence[torch.Tensor]) -> list[Span] | None:
        """Copy tensors of one device into a segment for a worker; None if it can have none."""
        if to in self.refusals:
            return None
        device = tensors[0].device.index or 0
        segment = self._take(to, device, nbytes_of(tensors))
        if segment is None:
            return None
        try:
            return segment.fill(tensors)
        except CudaFailure as error:
            raise DeviceError(
                f"expected to copy tensors for worker {to!r} into a segment of cuda:{device}, got "
                f"an error of the device, which may have been reset: {error}"
            ) from error
        finally:
            segment.is_taken = False

    def _take(self, to: str, device: int, nbytes: int) -> Export | None:
        now = time.monotonic()
        with self._lock:
            pool = self._pool(device)
            segment = pool.take(to, nbytes, now)
            if segment is not None:
                return segment
            plan = None if self._is_closed else pool.plan(nbytes)
            if plan is None:
                return None
            size, victims = plan
            victims = [each for each in victims if pool.drop(each)]
            # Reserved before it is allocated, so that other threads don't use the same room.
            pool.held += size
        try:
            self._withdraw(victims)
            segment = self._make(to, device, size)
        finally:
            with self._lock:
                pool.held -= size
        if segment is None:
            return None
        segment.used_at = now
        with self._lock:
            is_late = self._is_closed
            if not is_late:
                pool.add(segment)
                self._keep_time()
        if is_late:
            segment.free()
            return None
        return segment

    def _pool(self, device: int) -> SegmentPool[Export]:
        pool = self._pools.get(device)
        if pool is None:
            options = self._worker.options
            patience = _TIMEOUTS * options.rpc_timeout or _LEAST_PATIENCE
            pool = self._pools[device] = SegmentPool(options.device_segments, patience)
        return pool

    def _make(self, to: str, device: int, size: int) -> Export | None:
        """Return a new segment that its receiver has opened."""
        segment: Export | None = None
        place = -1
        try:
            with self._lock:
                receiver = self._receivers.get(to)
                if receiver is None:
                    receiver = self._receivers[to] = _Receiver()
                if not receiver.places:
                    return None
                place = receiver.places.pop()
            number = next(self._numbers)
            segment = Export(self.cuda, number, to, device, size, receiver.board, place)
            introduction = segment.introduction(self.uuids[device])
            refusal, _ = self._worker.ask_service(to, INTRODUCE, introduction)
        except PeerError:
            self._discard(segment)
            raise
        except (CudaFailure, OSError) as error:
            # Most likely the device is out of memory, which may change: not a lasting refusal.
            refusal = None if segment is None else str(error)
            self._discard(segment)
            segment = None
        except BaseException:
            self._discard(segment)
            raise
        if refusal is not None:
            self._refused(to, str(refusal))
            self._discard(segment)
            segment = None
        if segment is None and place >= 0:
            self._give_place_back(to, place)
        return segment

    def _discard(self, segment: Export | None) -> None:
        if segment is not None:
            segment.free()

    def _refused(self, to: str, reason: str) -> None:
        if self.refusals.setdefault(to, reason) is reason:
            _log.warning(
                "tensors of a device go to worker %s through the host's memory: %s", to, reason
            )

    def _give_place_back(self, to: str, place: int) -> None:
        with self._lock:
            receiver = self._receivers.get(to)
            if receiver is not None:
                receiver.places.append(place)

    def _withdraw(self, segments: Sequence[Export]) -> None:
        """Free segments that the pool has dropped, after their receivers have closed them."""
        for to in dict.fromkeys(segment.peer for segment in segments):
            mine = [segment for segment in segments if segment.peer == to]
            try:
                self._worker.ask_service(to, WITHDRAW, [segment.number for segment in mine])
            except (PeerError, UsageError):
                pass  # The receiver is lost or this worker leaves: nobody copies out of them.
            finally:
                for segment in mine:
                    segment.free()
                    self._give_place_back(to, segment.place)

    # Receiving.

    def unpack(self, frm: str, spans: Sequence[Span], devices: Sequence[str]) -> list[torch.Tensor]:
        """Copy the tensors that a message's spans describe out of their segments, to `devices`.

        Raises:
            ProtocolViolation: A span names data never sent, or sent in an earlier message.
            DeviceError: A device has no room for them.
        """
        numbers = {span.segment: None for span in spans}
        if len(numbers) == 1:
            return self._import(frm, spans[0], devices[0]).empty(spans, devices)
        made: dict[int, torch.Tensor] = {}
        for number in numbers:
            places = [place for place, span in enumerate(spans) if span.segment == number]
            mine, theirs = [spans[i] for i in places], [devices[i] for i in places]
            # All of a segment at once: after this the sender may fill it again.
            made.update(zip(places, self._import(frm, mine[0], theirs[0]).empty(mine, theirs)))
        return [made[place] for place in range(len(spans))]

    def _import(self, frm: str, span: Span, device: str) -> Import:
        own = self._imports.get(frm)
        segment = None if own is None else own.get(span.segment)
        if segment is None:
            raise ProtocolViolation(
                f"worker {frm!r} names the device segment {span.segment} for a tensor on "
                f"{device[:40]!r}, which it never sent or has taken back"
            )
        return segment

    def _on_introduce(self, request: ServiceRequest) -> None:
        introduction = _as_introduction(request.header)
        introduction.check()
        frm = request.frm.name
        try:
            if introduction.device not in self.uuids:
                raise CudaFailure(f"it does not see the device {introduction.device}")
            segment = Import(
                self.cuda,
                introduction,
                self.uuids.index(introduction.device),
                self._board(introduction.board),
                frm,
            )
        except (CudaFailure, OSError) as error:
            if isinstance(error, ProtocolViolation):
                raise
            request.reply(f"worker {self._worker.name!r} can't open it: {error}")
            return
        with self._lock:
            own = self._imports.setdefault(frm, {})
            is_new = introduction.segment not in own and len(own) < MARKS
            if is_new:
                own[introduction.segment] = segment
        if not is_new:
            segment.close()
            raise ProtocolViolation(
                f"expected a new device segment, got the number {introduction.segment} of {frm!r} "
                "again"
            )
        request.reply(None)

    def _board(self, whereabouts: tuple[int, int, bytes]) -> MarkBoard:
        secret = whereabouts[2]
        board = self._boards.get(secret)
        if board is None:
            board = self._boards[secret] = MarkBoard.open(*whereabouts)
        return board

    def _on_withdraw(self, request: ServiceRequest) -> None:
        numbers = _as_numbers(request.header)
        own = self._imports.get(request.frm.name, {})
        for number in numbers:
            segment = own.pop(number, None)
            if segment is not None:
                segment.close()
        request.reply(None)

    # The end.

    def _on_lost(self, who: WorkerInfo, error: BaseException) -> Callable[[], object]:
        # On another thread, since freeing memory waits for the device.
        return partial(self._worker.host.start, self._forgotten(who.name))

    def _forgotten(self, name: str) -> Callable[[], None]:
        """Remove all that is shared with a worker; return a function that frees it."""
        with self._lock:
            exports = [
                segment
                for pool in self._pools.values()
                for segment in pool.of(name)
                if pool.drop(segment)
            ]
            receiver = self._receivers.pop(name, None)
            self.refusals.pop(name, None)
            imports = self._imports.pop(name, {})
        return partial(self._free, exports, list(imports.values()), receiver)

    def _free(
        self, exports: Sequence[Export], imports: Sequence[Import], receiver: _Receiver | None
    ) -> None:
        if os.getpid() != self._process:
            return
        for each in imports:
            each.close()
        for segment in exports:
            segment.free(is_shared=True)
        if receiver is not None:
            receiver.board.close()

    def trim(self, now: float) -> None:
        """Free the segments that were not used for a while."""
        with self._lock:
            found = [
                segment
                for pool in self._pools.values()
                for segment in pool.idle(now)
                if pool.drop(segment)
            ]
        self._withdraw(found)

    def _keep_time(self) -> None:
        # A simulation has its own clock, which a timer on real time would disturb.
        if self._timer is None and self._worker.host.now is time.monotonic:
            self._timer = threading.Timer(_TICK, self._tick)
            self._timer.daemon = True
            self._timer.start()

    def _tick(self) -> None:
        self.trim(time.monotonic())
        with self._lock:
            self._timer = None
            if any(map(len, self._pools.values())) and not self._is_closed:
                self._keep_time()

    def held(self) -> int:
        """Return the size in bytes of all segments that this worker fills."""
        return sum(pool.held for pool in self._pools.values())

    def close(self) -> None:
        """Free everything: the worker shuts down."""
        with self._lock:
            self._is_closed = True
            if self._timer is not None:
                self._timer.cancel()
        exports = [
            segment
            for pool in self._pools.values()
            for name in list(self._receivers)
            for segment in pool.of(name)
        ]
        end = time.monotonic() + _LONGEST_GOODBYE
        while any(each.is_held() for each in exports) and time.monotonic() < end:
            # Receivers may still be reading the last messages. Polling is fine at shutdown.
            time.sleep(0.001)
        for name in dict.fromkeys([*self._receivers, *self._imports]):
            self._forgotten(name)()
