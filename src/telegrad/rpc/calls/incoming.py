"""The serving half of a worker: running other workers' calls and services, and answering them.

`receive` is called by the one thread that reads an endpoint. It runs no user code but returns it as
a task. A handler runs in a fresh context, so it sees no context variables of the thread that runs
it, or of the handler before it.
"""

import logging
from collections.abc import Callable
from contextlib import nullcontext, suppress
from contextvars import Context, copy_context
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import ValidationError

from telegrad.errors import CallTimeout, ProtocolViolation, Refused, Unserializable
from telegrad.rpc.calls.coroutines import Coroutines
from telegrad.rpc.calls.future import Future, Quick
from telegrad.rpc.calls.request import Request, current_request
from telegrad.rpc.calls.room import Waiting, run_and_release
from telegrad.rpc.calls.service import Service, ServiceRequest, open_message
from telegrad.rpc.endpoint import Endpoint
from telegrad.rpc.forked_process import end_copy
from telegrad.rpc.interruption import busy, is_busy, put_off, put_off_if_pressed, raise_put_off
from telegrad.rpc.losses import Farewell
from telegrad.rpc.security.audit import audit
from telegrad.rpc.wire.codec import Sealed, refuse_by_place
from telegrad.rpc.wire.failures import as_exception, dump_failure
from telegrad.rpc.wire.frames import (
    ANSWER,
    ANSWERS,
    BYE,
    CALL,
    CREATES,
    FAILURE,
    HELLO,
    NOTICE,
    PING,
    PONG,
    REFUSED,
    SERVICE,
    WAITING,
    Frame,
)

if TYPE_CHECKING:
    from telegrad.rpc.worker import Worker

F = TypeVar("F", bound=Callable[..., Future[Any]])
_log = logging.getLogger("telegrad.rpc")
_ASYNC = "__telegrad_async_execution__"


def async_execution(function: F) -> F:
    """Mark a function that returns a Future: its caller gets the future's value when that is there.

    Examples:
        >>> @rpc.async_execution
        ... def through(to, x):
        ...     return rpc.rpc_async(to, abs, (x,))
        >>> rpc.rpc_sync("ps", through, ("trainer", -3))
        3
    """
    setattr(function, _ASYNC, True)
    return function


def is_async_execution(function: Any) -> bool:
    """Say whether the function's answer is the value of the Future it returns."""
    return getattr(function, _ASYNC, False)


class Incoming:
    """The serving half of a worker."""

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker
        self._services: dict[str, Service] = {}
        self.waiting = Waiting(worker, self)
        self._most_calls = worker.options.calls_of_peer
        self.coroutines = Coroutines(worker)
        self.takes_requests = True
        """Whether incoming requests are served; False when this process ends."""
        self.served = 0
        """Grows when calls come; not exact, as threads that count at once may add only one."""

    def register(self, service: Service) -> None:
        """Serve messages to that service."""
        self._services[service.name] = service

    def receive(self, endpoint: Endpoint, frame: Frame) -> Callable[[], object] | None:
        """Handle a frame; return the user code to run for it, if any, as a task."""
        if frame.cost or frame.waits:
            return self._receive_counted(endpoint, frame)
        kind = frame.kind
        worker = self._worker
        if kind == CALL:
            if not self.takes_requests:
                return None
            if endpoint.serving and len(endpoint.serving) >= self._most_calls:
                self.waiting.refuse_one_more(endpoint, frame.ident)
                return None
            endpoint.serving.add(frame.ident)
            self.served += 1
            if frame.flags & CREATES:
                # Before any later frame on this path, which may mention the reference.
                value = worker.references.create_for(frame.parent, endpoint)
                # Answered at once, but counted as being served until the value is there.
                value.add_done_callback(Quick(partial(_served, endpoint, frame.ident)))
                self.send(endpoint, Frame(ANSWER, 0, frame.ident, 0, worker.codec.nothing))
                task = partial(Context().run, self._run_creation, endpoint, frame, value)
            else:
                task = partial(Context().run, self._run_call, endpoint, frame)
            return task if worker.joined is None else partial(self._when_joined, task)
        if kind in ANSWERS:
            worker.outgoing.answered(endpoint, frame)
        elif kind == NOTICE:
            return self._service(endpoint, frame, None)
        elif kind == SERVICE:
            if self.takes_requests:
                return self._service(endpoint, frame, frame.ident)
        elif kind == PING:
            # Not if it would have to wait: then the frame being sent is a sign of life itself, and
            # this thread reads for others.
            if endpoint.can_send():
                self.send(endpoint, Frame(PONG))
        elif kind == HELLO:
            worker.greeted(endpoint, frame.header)
        elif kind == BYE:
            worker.endpoint_lost(endpoint, Farewell("it has shut down"))
        elif kind == REFUSED:
            self.waiting.refuse(endpoint, frame)
        return None

    def _receive_counted(self, endpoint: Endpoint, frame: Frame) -> Callable[[], object] | None:
        """Handle a frame that takes part of the budget until it is served, or waits for room."""
        if frame.waits:
            self.waiting.receive(endpoint, frame, frame.waits)
            return None
        release = partial(self._worker.budget.release, endpoint.peer.name, frame.cost)
        # Released only once: a frame whose reader was interrupted is received again.
        frame.cost = 0
        task = None
        try:
            task = self.receive(endpoint, frame)
        finally:
            if task is None:
                release()
        return None if task is None else partial(run_and_release, task, release)

    def send(self, endpoint: Endpoint, frame: Frame) -> None:
        """Send a frame; if it can't be, the peer is lost."""
        if busy and is_busy():
            self._worker.host.start(partial(self.send, endpoint, frame))
            return
        if self._worker.outgoing.rides:
            self._worker.outgoing.end_rides(endpoint)
        try:
            endpoint.send(frame)
        except (OSError, EOFError) as error:
            self._worker.endpoint_lost(endpoint, error)
        except BaseException:
            # Most likely the frame is too large: the caller can be told.
            self._worker.references.take_back(frame)
            raise
        raise_put_off()

    def _service(
        self, endpoint: Endpoint, frame: Frame, number: int | None
    ) -> Callable[[], object] | None:
        """Handle a service's message; `number` is for its answer, None for a notice."""
        limit, strict = endpoint.limits.dimensions, self._worker.codec.strict
        name, header, content = open_message(frame.header, frame.buffers, limit, strict=strict)
        service = self._services.get(name)
        request = ServiceRequest(self._worker, endpoint, number, endpoint.peer, header, content)
        if service is None:
            request.fail(Refused(f"worker {self._worker.name!r} has no service {name!r}"))
            return None
        if service.inline:
            self._run_service(service, request)
            return None
        return partial(Context().run, self._run_service, service, request)

    def _run_service(self, service: Service, request: ServiceRequest) -> None:
        observer = self._worker.observer
        try:
            if not service.inline:
                current_request.set(Request(self._worker, None, 0, False))
            if observer is None:
                service.handler(request)
                return
            size = sum(array.nbytes for array in request.arrays)
            with observer.handling(request.frm.name, request.number, service.name, size):
                service.handler(request)
        except BaseException as error:
            if self._worker.is_copy:
                end_copy()
            if request.number is not None:
                request.fail(error)
            elif service.inline and isinstance(error, ProtocolViolation | ValidationError):
                # No worker sends such a frame; only the connection's end can tell the peer so.
                raise ProtocolViolation(f"a malformed notice came: {error}") from error
            else:
                _log.exception("a notice for service %s of %s", service.name, self._worker.name)
        finally:
            # Passes are services, too, and a user's hook may have forked in one.
            if self._worker.is_copy:
                end_copy()

    def _when_joined(self, task: Callable[[], object]) -> None:
        """Run a call, from a worker that joined earlier, once this one knows all others."""
        joined = self._worker.joined
        if joined is not None:
            with suppress(CallTimeout):
                joined.wait(self._worker.options.join_timeout)
        task()

    def _run_call(self, endpoint: Endpoint, frame: Frame) -> None:
        """Run a call in a context of its own, and answer it."""
        worker, number = self._worker, frame.ident
        request = Request(worker, endpoint, number, frame.flags & WAITING > 0)
        current_request.set(request)
        answer: Frame | None = None
        try:
            sealed, slots = worker.codec.unseal(
                frame.header, frame.buffers, endpoint.limits, endpoint.accept
            )
            if endpoint.unwanted and number in endpoint.unwanted:
                # It was given up while it waited for its turn. Unsealed all the same, to adopt the
                # references in it, which have arrived.
                endpoint.is_wanted(number)
                return
            interceptor = worker.interceptor
            context = None
            if interceptor is not None:
                context = interceptor.incoming_call(endpoint.peer, sealed.extra, slots)
            if context is None:
                answer = self._run_function(endpoint, frame, sealed, slots)
            else:
                with context:
                    answer = self._run_function(endpoint, frame, sealed, slots)
            if answer is not None:
                # Free the request's shared memory before answering, if the handler did not keep it.
                frame.buffers = ()
                del sealed, slots
                if worker.outgoing.rides:
                    worker.outgoing.end_rides(endpoint)
                # In this order: see `Endpoint.cancelled`.
                endpoint.serving.discard(number)
                if endpoint.unwanted and not endpoint.is_wanted(number):
                    # The call was given up while its answer was sealed.
                    worker.references.take_back(answer)
                    return
                try:
                    endpoint.send(answer)
                except (OSError, EOFError) as error:
                    worker.endpoint_lost(endpoint, error)
        except BaseException as error:
            if answer is not None:
                # Most likely the answer is too large: the caller can be told.
                worker.references.take_back(answer)
            self.answer_failure(endpoint, number, error)
            put_off_if_pressed(error)
        finally:
            request.can_nest = False
        if put_off:
            raise_put_off()

    def _run_function(
        self, endpoint: Endpoint, frame: Frame, sealed: Sealed, slots: list[Any]
    ) -> Frame | None:
        """Run the function; return the answer, ready to be sent, or None if it comes later."""
        worker = self._worker
        codec = worker.codec
        function, args, kwargs = codec.open_call(
            sealed, slots, frame.buffers, endpoint.received_code
        )
        try:
            if worker.observer is None and not codec.strict:
                result = function(*args, **kwargs)
            else:
                result = self._call(endpoint, frame, sealed, function, args, kwargs)
        finally:
            if worker.is_copy:
                end_copy()
        if getattr(function, _ASYNC, False) or type(result) is CoroutineType:
            self._answer_later(endpoint, frame.ident, self._later(result))
            return None
        if result is None and sealed.extra is None:
            # `nothing` is sealed once for all: an interceptor adds nothing to it.
            return Frame(ANSWER, 0, frame.ident, 0, codec.nothing)
        if isinstance(result, Future):
            raise TypeError(
                f"expected a value from {getattr(function, '__qualname__', function)}, got a "
                "Future, which can't be sent; return what its wait() gives, or mark the "
                "function with @rpc.async_execution to answer when it is there"
            )
        return self._seal_answer(endpoint, frame.ident, result)

    def _call(
        self,
        endpoint: Endpoint,
        frame: Frame,
        sealed: Sealed,
        function: Any,
        args: Any,
        kwargs: Any,
    ) -> Any:
        """Call the function under the observer, and log the call if the worker is strict."""
        worker, observer, peer = self._worker, self._worker.observer, endpoint.peer.name
        if worker.codec.strict:
            audit("called", worker.name, peer=peer, function=sealed.function)
        if observer is None:
            return function(*args, **kwargs)
        size = len(frame.header) + sum(map(len, frame.buffers))
        with observer.handling(peer, frame.ident, function, size):
            return function(*args, **kwargs)

    def _run_creation(self, endpoint: Endpoint, frame: Frame, value: Future[Any]) -> None:
        """Run a call whose result stays here as the value of a reference."""
        worker = self._worker
        current_request.set(Request(worker, endpoint, frame.ident, False))
        try:
            sealed, slots = worker.codec.unseal(
                frame.header, frame.buffers, endpoint.limits, endpoint.accept
            )
            interceptor = worker.interceptor
            context = None
            if interceptor is not None:
                context = interceptor.incoming_call(endpoint.peer, sealed.extra, slots)
            with context or nullcontext():
                function, args, kwargs = worker.codec.open_call(
                    sealed, slots, frame.buffers, endpoint.received_code
                )
                try:
                    result = self._call(endpoint, frame, sealed, function, args, kwargs)
                finally:
                    if worker.is_copy:
                        end_copy()
            if is_async_execution(function) or type(result) is CoroutineType:
                self._later(result).add_done_callback(partial(_copy_outcome, value))
            else:
                # Not `set_result`: if the value was given up meanwhile, it is settled already.
                value._settle(result, None)
        except BaseException as error:
            value._settle(None, as_exception(error))
            # The traceback holds this frame; see Future.wait.
            del value

    def _later(self, result: Any) -> Future[Any]:
        """Return the future of the value of a coroutine or an async_execution function."""
        if type(result) is CoroutineType:
            return self.coroutines.run(result)
        if not isinstance(result, Future):
            raise TypeError(
                "expected a Future from a function marked async_execution, got "
                f"{type(result).__qualname__}"
            )
        return result

    def _seal_answer(self, endpoint: Endpoint, number: int, result: Any) -> Frame | None:
        """Return the answer, ready to be sent; None if its call was given up."""
        worker = self._worker
        if number in endpoint.unwanted:
            endpoint.is_wanted(number)
            return None
        parcel = worker.codec.pack_result(result)
        extra = None
        if worker.interceptor is not None:
            try:
                extra = worker.interceptor.outgoing_result(endpoint.peer, parcel.slots)
            except Unserializable:
                refuse_by_place(parcel)
                raise
        answer = Frame(ANSWER, 0, number)
        export = partial(worker.references.export, endpoint, answer)
        try:
            answer.header, answer.buffers = worker.codec.seal(parcel, extra, export)
        except BaseException:
            worker.references.take_back(answer)
            raise
        return answer

    def _answer_later(self, endpoint: Endpoint, number: int, result: Future[Any]) -> None:
        # The answer must be packed in the present context, which is the interceptor's.
        context = copy_context()

        def answer(done: Future[Any]) -> None:
            failure = done.exception()
            if failure is not None:
                # Not raised: the future keeps its error, whose traceback would keep this frame.
                self.answer_failure(endpoint, number, failure)
                return
            try:
                sealed = context.run(self._seal_answer, endpoint, number, done.value())
                if sealed is not None and endpoint.is_wanted(number):
                    self.send(endpoint, sealed)
                elif sealed is not None:
                    self._worker.references.take_back(sealed)
            except BaseException as error:
                self.answer_failure(endpoint, number, error)

        result.add_done_callback(answer)

    def answer_failure(self, endpoint: Endpoint, number: int, error: BaseException) -> None:
        """Answer a call or a service's message with an exception."""
        if not endpoint.is_wanted(number):
            return
        worker, codec = self._worker, self._worker.codec
        if codec.strict and isinstance(error, Refused):
            name, said = endpoint.peer.name, str(error)
            worker.refusals.note(name, worker.host.now(), f"refused {name!r}: {said}", reason=said)
        header = dump_failure(error, worker.name, strict=codec.strict, script=codec.script)
        self.send(endpoint, Frame(FAILURE, 0, number, 0, header))


def _copy_outcome(to: Future[Any], done: Future[Any]) -> None:
    error = done.exception()
    to._settle(done._value, None if error is None else as_exception(error))


def _served(endpoint: Endpoint, number: int, done: Future[Any]) -> None:
    endpoint.is_wanted(number)
