"""The calling half of a worker: its calls and services' messages, until each is settled.

All methods may run on any thread. Nothing is ever sent twice. A peer that does not read blocks the
sender of a call until the call's deadline, and the sender of a notice for a moment.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from telegrad.errors import (
    CallTimeout,
    NotInitialized,
    PeerError,
    ProtocolViolation,
    Refused,
    Unserializable,
)
from telegrad.rpc.calls.call import Call
from telegrad.rpc.calls.future import Quick
from telegrad.rpc.calls.request import current_request
from telegrad.rpc.calls.service import Arrays, open_message, seal_message
from telegrad.rpc.endpoint import MAY_WAIT, RETRY_AFTER, UNASKED, Endpoint
from telegrad.rpc.interruption import busy, check_not_busy, is_busy, put_off, raise_put_off
from telegrad.rpc.references.rref import RRef
from telegrad.rpc.timeouts import seconds
from telegrad.rpc.wire.codec import refuse_by_place
from telegrad.rpc.wire.failures import load_failure
from telegrad.rpc.wire.frames import (
    CALL,
    CARRIES,
    CREATES,
    FAILURE,
    GRANTED,
    NOTICE,
    SERVICE,
    UNOPENED,
    WAITING,
    Frame,
)

if TYPE_CHECKING:
    from telegrad.rpc.names import WorkerInfo
    from telegrad.rpc.protocol.session import Session
    from telegrad.rpc.worker import Worker

# Seconds for which a peer that does not read may block the sender of a notice.
_LONGEST_NOTICE: Final = 1.0
# The most seconds that a notice waits for the next frame.
_LONGEST_RIDE: Final = 0.05


class Outgoing:
    """The calling half of a worker."""

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker
        self.rides: dict[Any, None] = {}
        """The paths whose notices wait for the next frame, and other objects with a ``flush``."""
        # Whether a ride was added since `rides_until` was set.
        self._has_ridden = False
        self.rides_until = math.inf
        """When `end_late_rides` must be called."""

    def deadline(self, timeout: float | None) -> float:
        """Return the deadline of a call that is made now; a timeout of 0 means none."""
        if timeout is None or (type(timeout) in (int, float) and timeout == -1):
            timeout = self._worker.options.rpc_timeout
        else:
            timeout = seconds(timeout)
        return self._worker.host.now() + timeout if timeout else math.inf

    def call(
        self,
        to: "str | int | WorkerInfo",
        function: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        timeout: float | None,
        *,
        waits: bool,
        creates: int = 0,
        said: str | None = None,
    ) -> Call:
        """Send a call.

        `waits`: the calling thread will wait for it at once. `creates`: the result stays there, as
        the reference of that number. `said`: its name in errors, if not its function's.
        """
        if busy:
            check_not_busy()
        worker = self._worker
        peer = worker.find(to)
        deadline = self.deadline(timeout)
        endpoint: Endpoint | None = None
        parent = creates
        if waits:
            request = current_request.get()
            if timeout is not None and peer.info.name == worker.name:
                # As a waiting call it would run on this thread, unable to stop at its timeout.
                waits = False
            elif (
                request is not None
                and request.can_nest
                and request.worker is worker
                and request.endpoint is not None
                and request.endpoint.peer.name == peer.info.name
            ):
                endpoint, parent = request.endpoint, request.number
        parcel = worker.codec.pack_call(function, args, kwargs)
        if endpoint is None:
            endpoint = peer.outgoing
            if endpoint is None or endpoint.closed:
                endpoint = worker.path_to(peer, deadline)
        call = Call(worker, endpoint, deadline, function)
        if creates:
            call.creates = creates
        elif not waits:
            call.is_own = True
        if said is not None:
            call.said = said
        interceptor = worker.interceptor
        if interceptor is not None:
            try:
                call.extra = interceptor.outgoing_call(endpoint.peer, parcel.slots)
            except Unserializable:
                refuse_by_place(parcel)
                raise
        try:
            if parcel.code is not None:
                if endpoint.sent_code.get(parcel.function) is True:
                    parcel.code = None
                else:
                    call.code = parcel.function
            header, buffers = worker.codec.seal(parcel, call.extra, call.export)
            if call.code is not None:
                endpoint.sent_code.put(call.code, False)
            flags = WAITING if waits else CREATES if creates else 0
            self._begin(call, Frame(CALL, flags, 0, parent, header, buffers))
        except BaseException as error:
            worker.references.take_back(call)
            # The interceptor is told, but the call is not settled: no one has it, and it would keep
            # the error, whose traceback leads back to it.
            self._tell_failed(call, error)
            raise
        if put_off and not creates:
            raise_put_off()
        return call

    def create(
        self,
        to: "str | int | WorkerInfo",
        function: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        timeout: float | None,
        said: str | None = None,
    ) -> RRef:
        """Send a call whose result stays on its callee; return a reference to the result."""
        worker, references = self._worker, self._worker.references
        owner = worker.find(to).info
        number = worker.next_id()
        is_own = owner.name == worker.name
        handle = references.reserve(number) if is_own else references.ask_for(number, owner)
        try:
            call = self.call(
                to, function, args, kwargs, timeout, waits=False, creates=number, said=said
            )
        except BaseException as error:
            # Never sent, so never confirmed. The error's traceback holds this frame.
            del handle
            references.asked(number, error)
            raise
        if not is_own:
            call.add_done_callback(Quick(lambda done: references.asked(number, done._error)))
            if said is None:
                handle._made_by = function
        raise_put_off()
        return handle

    def _begin(self, call: Call, frame: Frame) -> None:
        endpoint = call.endpoint
        deadline = call.deadline
        worker = self._worker
        announced = None
        if endpoint.may_block:
            if frame.buffers:
                announced = endpoint.announced(frame)
                if announced is not None and not self._find_room(call, frame, announced):
                    return
            # Until the frame is sent, its sender fails the call at the deadline, not the timers:
            # only the sender knows whether any of it was sent.
            call.deadline = math.inf
        try:
            frame.ident = call.number = endpoint.calls.begin(call)
            if announced is UNASKED:
                endpoint.unasked = call.number
            if worker.observer is not None:
                worker.observer.sent(call, len(frame.header) + sum(map(len, frame.buffers)))
            if self.rides:
                self.end_rides(endpoint)
            went = endpoint.send(frame, deadline)
            call.deadline = deadline
        except (OSError, EOFError) as error:
            # The loss settles this call together with all others of the path.
            worker.endpoint_lost(endpoint, error)
            return
        except BaseException:
            endpoint.calls.withdraw(call)
            self._give_room_back(endpoint, announced)
            raise
        if not went:
            self._give_room_back(endpoint, announced)
            if endpoint.calls.finish(call.number) is not None:
                self._not_taken(call)
        elif not frame.flags & WAITING and not call._done:
            endpoint.expect()
            worker.host.rouse(deadline)

    def _find_room(self, call: Call, frame: Frame, announced: tuple[int, int]) -> bool:
        """Wait until there is room for a large request; if not, fail the call, return False."""
        endpoint = call.endpoint
        if announced is UNASKED:
            return True
        try:
            self._worker.incoming.waiting.ask(endpoint, announced, call.deadline)
        except (PeerError, Refused) as error:
            self._not_taken(call, None if isinstance(error, CallTimeout) else error)
            return False
        frame.flags |= GRANTED
        if endpoint.unasked == MAY_WAIT:
            # Requests of a path have their turns in order: the turn of the unannounced one is over.
            endpoint.unasked = 0
        return True

    def _give_room_back(self, endpoint: Endpoint, announced: tuple[int, int] | None) -> None:
        if announced is not None and announced is not UNASKED:
            self._worker.incoming.waiting.give_back(endpoint, announced)

    def _not_taken(self, call: Call, error: BaseException | None = None) -> None:
        """Fail a call that was not sent before its deadline: it has certainly not run."""
        self._worker.references.take_back(call)
        self._failed(call, error or call.too_late("did not take"))

    def service(
        self,
        to: "str | int | WorkerInfo",
        name: str,
        header: Any,
        arrays: Arrays,
        deadline: float,
        *,
        waits: bool,
    ) -> Call:
        """Send a service's message that is answered with (header, arrays)."""
        if busy:
            check_not_busy()
        peer = self._worker.find(to)
        endpoint = peer.outgoing
        if endpoint is None or endpoint.closed:
            endpoint = self._worker.path_to(peer, deadline)
        return self.service_on(endpoint, name, header, deadline, arrays, waits)

    def service_on(
        self,
        endpoint: Endpoint,
        name: str,
        header: Any,
        deadline: float,
        arrays: Arrays = (),
        waits: bool = True,
    ) -> Call:
        """Send a service's message on the path that it is about."""
        call = Call(self._worker, endpoint, deadline, name)
        call.is_service = True
        data, buffers = seal_message(name, header, arrays)
        self._begin(call, Frame(SERVICE, WAITING if waits else 0, 0, 0, data, buffers))
        if put_off:
            raise_put_off()
        return call

    def notify(self, peer: "Session", name: str, header: Any, rides: bool = False) -> None:
        """Send a service's message that is not answered.

        A notice that `rides` is not urgent: it goes with the next frame to that worker, before this
        worker calls or answers any other, and after 50 ms at the latest.
        """
        if busy and is_busy():
            self._worker.host.start(partial(self._notify_later, peer, name, header))
            return
        endpoint = peer.outgoing
        if endpoint is None or endpoint.closed:
            endpoint = self._worker.path_to(peer, self.deadline(None))
        if rides and endpoint.send_with_next(seal_message(name, header, ())[0]):
            self.ride(endpoint)
            return
        self.notify_on(endpoint, name, header)

    def ride(self, what: Any) -> None:
        """Call ``what.flush`` before a frame goes on another path, after 50 ms at the latest."""
        # In this order: `end_late_rides` uses the opposite one, so no path is forgotten.
        self._has_ridden = True
        self.rides[what] = None
        if self.rides_until == math.inf:
            self.rides_until = self._worker.host.now() + _LONGEST_RIDE
            self._worker.host.rouse(self.rides_until)

    def end_rides(self, but: Endpoint | None = None) -> None:
        """Send the notices that wait for the next frame, except on the path that sends one now."""
        while self.rides:
            try:
                endpoint, _ = self.rides.popitem()
            except KeyError:
                # Another thread took the last one.
                return
            if endpoint is not but:
                endpoint.flush()

    def end_late_rides(self, now: float) -> None:
        """Send the notices that found no next frame; keep the timer on while new ones come."""
        if self.rides_until > now:
            return
        self.rides_until = math.inf
        if self._has_ridden or self.rides:
            # The host is not roused for each: after one notice, the next will soon follow.
            self._has_ridden = False
            self.rides_until = now + _LONGEST_RIDE
            self.end_rides()

    def _notify_later(self, peer: "Session", name: str, header: Any) -> None:
        # A peer that can't be reached needs no notice, nor does any if this worker has shut down.
        with suppress(PeerError, NotInitialized):
            self.notify(peer, name, header)

    def notify_on(self, endpoint: Endpoint, name: str, header: Any) -> None:
        """Send a notice on the path that it is about."""
        host, outbox = self._worker.host, endpoint.outbox
        data, _ = seal_message(name, header, ())
        now = host.now()
        try:
            # If a notice waits already, the next one must not block on the same peer again.
            if outbox or not endpoint.send(Frame(NOTICE, 0, 0, 0, data), now + _LONGEST_NOTICE):
                # Sent when there is room. In this order: an early timer finds the notice again.
                outbox.append(data)
                endpoint.retry_at = min(endpoint.retry_at, now + RETRY_AFTER)
                host.rouse(endpoint.retry_at)
        except (OSError, EOFError) as error:
            self._worker.endpoint_lost(endpoint, error)
        raise_put_off()

    def answered(self, endpoint: Endpoint, frame: Frame) -> None:
        """Settle the call that the frame answers; a late answer is dropped."""
        call = endpoint.calls.open.get(frame.ident)
        if call is None:
            self._drop(endpoint, frame)
            return
        try:
            # Inside the `try`: a call neither open nor settled would never return to its waiters.
            if endpoint.calls.finish(frame.ident) is None:
                self._drop(endpoint, frame)
                return
            if frame.flags & UNOPENED:
                self._worker.references.take_back(call)
            elif call.code is not None and frame.kind != FAILURE and not call.creates:
                # A creation is answered before it is unpacked, and a failed call may never have
                # been: the peer may not have seen the code yet.
                endpoint.sent_code.replace(call.code, True)
            worker = self._worker
            if worker.observer is not None:
                worker.observer.answered(call, len(frame.header) + sum(map(len, frame.buffers)))
            if frame.kind == FAILURE:
                self._failed(call, load_failure(frame.header, strict=worker.codec.strict))
            elif call.is_service:
                limit, strict = endpoint.limits.dimensions, worker.codec.strict
                _, header, content = open_message(frame.header, frame.buffers, limit, strict=strict)
                call._settle((header, content), None)
            elif frame.header == worker.codec.nothing and not frame.buffers:
                call._settle(None, None)
            else:
                sealed, slots = worker.codec.unseal(
                    frame.header, frame.buffers, endpoint.limits, endpoint.accept
                )
                if worker.interceptor is not None:
                    call.taken = worker.interceptor.incoming_result(
                        endpoint.peer, call.extra, sealed.extra, slots
                    )
                call._settle(worker.codec.open_result(sealed, slots, frame.buffers), None)
        except BaseException as error:
            endpoint.calls.finish(frame.ident)
            if call._done:
                # Interrupted as it was settled: others may wait for it.
                call._tell()
            else:
                self._failed(call, error)
            if isinstance(error, ProtocolViolation | KeyboardInterrupt | SystemExit):
                # A signal concerns not just this call: the reading thread may wait for another.
                raise

    def _drop(self, endpoint: Endpoint, frame: Frame) -> None:
        """Drop a late answer; unseal it if it carries references, to adopt them.

        References of a request that was given up, and then refused, have never arrived.
        """
        given_up = endpoint.calls.given_up.pop(frame.ident, None)
        if frame.flags & UNOPENED and given_up is not None:
            self._worker.references.take_back_all(given_up)
        if frame.flags & CARRIES:
            self._worker.codec.unseal(frame.header, frame.buffers, endpoint.limits, endpoint.accept)

    def _failed(self, call: Call, error: BaseException) -> None:
        self._tell_failed(call, error)
        call.fail(error)

    def _tell_failed(self, call: Call, error: BaseException) -> None:
        interceptor, observer = self._worker.interceptor, self._worker.observer
        if interceptor is not None and not call.is_service and not call._done:
            try:
                interceptor.failed_call(call.endpoint.peer, call.extra, error)
            except Exception as more:
                error.add_note(f"the interceptor failed as well: {more!r}")
        if observer is not None:
            observer.answered(call, 0)

    def expire(self, endpoint: Endpoint, now: float) -> None:
        """Fail the calls whose deadline has passed, on other threads, since that may take long."""
        if self._worker.rest.is_on:
            self._worker.rest.put_off(endpoint, now)
            return
        for call in endpoint.calls.expired(now):
            self._worker.host.start(partial(self._give_up, call))

    def expire_call(self, call: Call) -> None:
        """Fail one call whose deadline has passed, unless it was settled meanwhile."""
        if self._worker.rest.is_on:
            self._worker.rest.put_off_call(call, self._worker.host.now())
        elif call.endpoint.calls.give_up(call.number) is not None:
            self._give_up(call)

    def _give_up(self, call: Call) -> None:
        if call.number == call.endpoint.unasked:
            call.endpoint.unasked = MAY_WAIT
        self._failed(call, call.too_late("did not answer"))
        self._worker.references.gave_up(call)

    def abandon(self, endpoint: Endpoint, error: Callable[[], BaseException]) -> None:
        """Fail all calls on a path that is lost."""
        for call in endpoint.calls.drain():
            self._failed(call, error())
