"""Recording calls: the interceptor that gives every message with gradients an id on both sides.

Inside a context, a call's extra is ``[context id, message id, slots, path]`` and a result's ``[message id,
slots, path]``, where `slots` lists which values of the message were tensors that require grad. Such a
message has a send node where it left and a recv node where it arrived. Message id 0 means that
none did: the context still follows the call, since its result may require grad.

Under ``no_grad`` the extra is False: nothing is recorded, and what comes back is constant.
"""

from contextlib import AbstractContextManager, nullcontext
from contextvars import Token
from types import TracebackType
from typing import Any

from telegrad.distributed.contexts import CURRENT, Context, Contexts, Place
from telegrad.distributed.nodes import Path, RecvNode, SendNode
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.worker import Worker
from telegrad.tensors import Tensor, wrap
from telegrad.tensors.modes import MODE

__all__ = ["Recorder"]

_NOTHING: AbstractContextManager[Any] = nullcontext()


class Recorder:
    """One worker's interceptor: its contexts, and the nodes that calls leave in them."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.contexts = Contexts(worker.name)
        self.carrier: Any = None
        """What runs passes over these contexts; see carrying.py."""

    # The caller's side.

    def outgoing_call(self, to: WorkerInfo, values: list[Any]) -> Any:
        place = CURRENT.get()
        if place is None:
            return None
        if not MODE.get().recording:
            return False
        context = place.context
        path = place.step()
        slots = _recorded(values)
        context.known.setdefault(to.name, to)
        message_id = self._give(context, to, values, slots, path) if slots else 0
        return [context.id, message_id, slots, path]

    def incoming_result(
        self, frm: WorkerInfo, call_extra: Any, extra: Any, values: list[Any]
    ) -> None:
        if call_extra is False:
            for i, value in enumerate(values):
                if isinstance(value, Tensor):
                    values[i] = value.detach()
        elif extra is not None:
            context = self.contexts.find(call_extra[0])
            message_id, slots, path = extra
            if context is not None:
                self._take(context, frm, message_id, values, slots, tuple(path))
            else:
                _detach(values, slots)

    def failed_call(self, to: WorkerInfo, call_extra: Any, error: BaseException) -> None:
        if call_extra and call_extra[1]:
            context = self.contexts.find(call_extra[0])
            if context is not None:
                # Nobody received it, so nobody will send a gradient for it.
                context.sends.pop(call_extra[1], None)

    # The callee's side.

    def incoming_call(
        self, frm: WorkerInfo, extra: Any, values: list[Any]
    ) -> AbstractContextManager[Any]:
        if not extra:
            return _NOTHING
        context_id, message_id, slots, path = extra
        context = self.contexts.open(context_id, frm)
        path = tuple(path)
        if message_id:
            self._take(context, frm, message_id, values, slots, path)
        return _InPlace(Place(context, path))

    def outgoing_result(self, to: WorkerInfo, extra: Any, values: list[Any]) -> Any:
        place = CURRENT.get()
        if place is None:
            if extra is False:
                _detach(values, range(len(values)))
            return None
        slots = _recorded(values)
        if not slots:
            return None
        path = place.step()
        return [self._give(place.context, to, values, slots, path), slots, path]

    # Gradients of a recorded pass are messages too.

    def give(self, context: Context, to: WorkerInfo, values: list[Any], path: Path) -> Any:
        """Records Tensors that leave outside of a call; returns what the other side needs."""
        slots = _recorded(values)
        if not slots:
            return None
        return [self._give(context, to, values, slots, path), slots, path, self.worker.name]

    def take(self, context: Context, extra: Any, values: list[Any]) -> None:
        """Joins Tensors that arrived so to their message."""
        message_id, slots, path, frm = extra
        self._take(context, self.worker.find(frm).info, message_id, values, slots, tuple(path))

    # Both.

    def _give(
        self, context: Context, to: WorkerInfo, values: list[Any], slots: list[int], path: Path
    ) -> int:
        message_id = self.worker.next_id()
        node = SendNode.of([values[i] for i in slots], message_id, path, to.name)
        for i in slots:
            values[i] = wrap(values[i].array, None, values[i].tangents)
        context.sends[message_id] = node
        return message_id

    def _take(
        self,
        context: Context,
        frm: WorkerInfo,
        message_id: int,
        values: list[Any],
        slots: list[int],
        path: Path,
    ) -> None:
        arrived = [values[i] for i in slots]
        node, outputs = RecvNode.of(arrived, message_id, path, frm.name, context)
        for i, output in zip(slots, outputs):
            values[i] = output
        context.recvs[message_id] = node


def _recorded(values: list[Any]) -> list[int]:
    return [i for i, v in enumerate(values) if isinstance(v, Tensor) and v.node is not None]


def _detach(values: list[Any], slots: Any) -> None:
    for i in slots:
        if isinstance(values[i], Tensor):
            values[i] = values[i].detach()


class _InPlace:
    """Makes a place current while a handler runs."""

    __slots__ = ("_place", "_token")

    def __init__(self, place: Place) -> None:
        self._place = place
        self._token: Token[Place | None] | None = None

    def __enter__(self) -> None:
        self._token = CURRENT.set(self._place)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._token is not None:
            CURRENT.reset(self._token)
