"""The recorder of calls: an interceptor that makes the send and recv nodes of messages.

Inside a context, a call's extra is ``[context id, message id, slots, path, levels, passes]`` and a
result's ``[message id, slots, path]``. `slots` lists the message's tensors that require grad
(tangents are counted after their primals): such a message has a send node at the sender and a recv
node at the receiver. Message id 0 means that no tensor requires grad; the context still follows the
call, since its result may. `levels` are the caller's open dual levels, which have shadows in the
handler; `passes` are those whose hook or rule makes the call.

Context id 0 means no context. Context id -1 means ``no_grad``: nothing is recorded, and results are
constants. The extra None, usual outside of contexts and levels, takes one byte.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from telegrad.arrays.cupy import is_cupy
from telegrad.arrays.devices import device_of
from telegrad.autograd.functional.variables import VARIABLES, depend_on_variables
from telegrad.distributed import frameworks
from telegrad.distributed.contexts.context import (
    CURRENT,
    ENCLOSING_PASSES,
    Context,
    Contexts,
    ProgramPoint,
)
from telegrad.distributed.contexts.dual_levels import LevelRegistry
from telegrad.distributed.contexts.leases import Leases
from telegrad.distributed.contexts.message_nodes import Path, RecvNode, SendNode
from telegrad.distributed.contexts.tensor_kind import (
    CarriedDual,
    flatten,
    refuse_map,
    snapshot,
)
from telegrad.errors import ContextError, ProtocolViolation, TelegradError
from telegrad.graph import next_key
from telegrad.rpc.calls.request import current_request
from telegrad.rpc.names import WorkerInfo, maker_of
from telegrad.rpc.references.rref import RRef
from telegrad.rpc.wire import kinds
from telegrad.rpc.worker import Worker
from telegrad.tensors import LEAF, Tensor, wrap
from telegrad.tensors.forward.duals import without_history
from telegrad.tensors.forward.levels import LEVELS
from telegrad.tensors.recording.modes import MODE

NO_CONTEXT: Final = 0
NO_GRAD: Final = -1
_NOTHING: AbstractContextManager[Any] = nullcontext()


class Recorder:
    """One worker's interceptor: the nodes that calls leave in its contexts."""

    def __init__(
        self,
        worker: Worker,
        contexts: Contexts,
        levels: LevelRegistry,
        leases: Leases,
        backward_here: Callable[[RRef, int, bool], None],
    ) -> None:
        self._worker = worker
        self._contexts = contexts
        self._levels = levels
        self._leases = leases
        self._backward_here = backward_here
        self._has_map = worker.options.device_maps.get

    # The caller's side.

    def outgoing_call(self, to: WorkerInfo, values: list[Any]) -> Any:
        point = CURRENT.get()
        levels = LEVELS.get()
        enclosing = ENCLOSING_PASSES.get()
        is_recording = MODE.get().recording
        if not frameworks.known:
            # Load a framework that the program has imported before its first value is met: its
            # modes, such as no_grad, hold for this call, but not for handlers served meanwhile.
            kinds.load_imported()
        if is_recording and frameworks.known:
            is_recording = frameworks.is_recording(values)
        shared = [self._levels.share(level, to.name) for level in levels] if levels else []
        if point is not None and is_recording:
            context = point.context
            path = point.step()
            context.meet(to)
            # Checked after `meet`, so that a later release notifies `to`, too. A handler that
            # outlives its context must not open it again on another worker.
            if not context.released:
                message_id, slots = self._give(context, to.name, values, path)
                return [context.id, message_id, slots, path, shared, enclosing]
        if is_recording and VARIABLES.get():
            _refuse_variables(to.name, values)
        self._carry_duals(to.name, values)
        if point is None and is_recording and not levels and not enclosing:
            return None
        return [NO_CONTEXT if is_recording else NO_GRAD, 0, [], (), shared, enclosing]

    def incoming_result(
        self, frm: WorkerInfo, call_extra: Any, extra: Any, values: list[Any]
    ) -> Callable[[], None] | None:
        taken = None
        try:
            if values and frameworks.known:
                taken = frameworks.arrive(values, self._worker, frm.name)
            duals = self._arrive_duals(values)
            if call_extra is None:
                return taken
            context_id = call_extra[0]
            if context_id == NO_GRAD:
                _make_constant(values)
            elif extra is not None:
                # If the context has been released, the values get a history that raises in a pass:
                # as constants they would silently lack a gradient.
                context = self._contexts.find(context_id) or self._contexts.ended(context_id)
                message_id, slots, path = extra
                self._take(context, frm.name, message_id, values, slots, tuple(path), duals)
        except TelegradError:
            raise
        except (LookupError, TypeError, ValueError, StopIteration) as error:
            raise ProtocolViolation(
                f"worker {frm.name!r} told of the values of an answer what no worker does: "
                f"{error!r}"
            ) from error
        return taken

    def failed_call(self, to: WorkerInfo, call_extra: Any, error: BaseException) -> None:
        if call_extra is not None and call_extra[1]:
            context = self._contexts.find(call_extra[0])
            if context is not None:
                # The caller has no result, so no gradient will come. If the handler kept a value
                # and a pass reaches it, the pass fails with the error in `failed`.
                context.failed[call_extra[1]] = type(error).__name__
                context.sends.pop(call_extra[1], None)

    # The callee's side.

    def incoming_call(
        self, frm: WorkerInfo, extra: Any, values: list[Any]
    ) -> AbstractContextManager[Any] | None:
        if values or extra is not None:
            self._arrive(frm, extra, values)
            request = current_request.get()
            if request is not None and request.endpoint is not None and request.endpoint.closed:
                # The caller was lost before the call's levels and context were known here, so that
                # loss does not close them. Ask the workers that opened them instead.
                self._levels.verify()
                if extra is not None and extra[0] not in (NO_CONTEXT, NO_GRAD):
                    self._leases.verify(extra[0])
        if not frameworks.known:
            return None
        scope = frameworks.default_modes(_NOTHING)
        return None if scope is _NOTHING else scope

    def _arrive(self, frm: WorkerInfo, extra: Any, values: list[Any]) -> None:
        """Make the caller's context, levels and passes current for the handler.

        The handler runs in contextvars of its own, so nothing has to be reset.
        """
        if frameworks.known:
            # On the handler's thread, so that work it enqueues on a device comes after.
            frameworks.arrive(values, self._worker, frm.name)
        if extra is None:
            self._arrive_duals(values)
            return
        context_id, message_id, slots, path, shared, enclosing = extra
        open_levels = self._levels.meet(shared) if shared else ()
        duals = self._arrive_duals(values)
        if open_levels:
            LEVELS.set(tuple([level for level in open_levels if level is not None]))
        if enclosing:
            ENCLOSING_PASSES.set(tuple(enclosing))
        if context_id in (NO_CONTEXT, NO_GRAD):
            return
        if maker_of(context_id) == self._worker.id:
            # A context of this worker exists, was released, or belongs to an earlier incarnation.
            # It is never made anew here, since nobody would release it.
            context = self._contexts.get(context_id)
            context.meet(frm)
        else:
            context = self._contexts.open(context_id, frm)
        path = tuple(path)
        if message_id:
            self._take(context, frm.name, message_id, values, slots, path, duals)
        CURRENT.set(ProgramPoint(context, path))

    def outgoing_result(self, to: WorkerInfo, values: list[Any]) -> Any:
        if values and not frameworks.known:
            kinds.load_imported()
        point = CURRENT.get()
        levels = LEVELS.get()
        if levels:
            self._levels.check(levels)
        if point is None:
            self._carry_duals(to.name, values)
            return None
        path = point.step()
        message_id, slots = self._give(point.context, to.name, values, path)
        return [message_id, slots, path] if message_id else None

    # References.

    def backward_from(self, reference: RRef, context_id: int, retain_graph: bool) -> None:
        """Run a pass from an RRef's value, on its owner; see ``RRef.backward``."""
        args = (reference, context_id, retain_graph)
        said = f"backward of {reference!r}"
        self._worker.outgoing.call(
            reference.owner(), self._backward_here, args, None, None, waits=True, said=said
        ).wait()

    # Gradients of a recorded pass are messages too.

    def give(self, context: Context, to: str, values: list[Any], path: Path) -> Any:
        """Record Tensors that are sent outside of a call; return the facts for the receiver."""
        edges, slots, _, devices = _recorded(values)
        if not slots:
            return None
        message_id = self._send_node(context, to, edges, path, devices)
        return [message_id, slots, path, self._worker.name]

    def take(
        self, context: Context, extra: Any, values: list[Any], duals: dict[int, CarriedDual]
    ) -> None:
        """Make received Tensors the outputs of their recv node; `duals` has the dual ones."""
        message_id, slots, path, frm = extra
        self._take(context, frm, message_id, values, slots, tuple(path), duals)

    # Both sides.

    def _give(
        self, context: Context, to: str, values: list[Any], path: Path
    ) -> tuple[int, list[int]]:
        """Record the values of a message; replace them, in place, by the values to send."""
        # First, so that a value which can't be sent raises before anything is recorded.
        given = values
        if frameworks.known:
            given = frameworks.leave(values, self._worker, self._levels, to, is_recorded=True)
        edges, slots, replaced, devices = _recorded(given)
        if replaced:
            self._replace(to, values, replaced)
        if self._has_map(to):
            refuse_map(to, values)
        message_id = self._send_node(context, to, edges, path, devices) if slots else 0
        return message_id, slots

    def _replace(self, to: str, values: list[Any], replaced: dict[int, Tensor | None]) -> None:
        """Replace, in place, Parameters (None) and dual tensors by the values to send."""
        duals: dict[int, CarriedDual] = {}
        for i, dual in replaced.items():
            if not isinstance(values[i], Tensor):
                continue
            if dual is None:
                # At the receiver it is an output of the recv node, not a Parameter.
                values[i] = wrap(values[i].array)
            else:
                values[i] = duals[i] = CarriedDual.of(dual, self._levels, to)
        if duals and frameworks.known:
            frameworks.leave([*duals.values()], self._worker, self._levels, to, is_recorded=False)

    def _send_node(
        self, context: Context, to: str, edges: list[Any], path: Path, devices: Any
    ) -> int:
        message_id = self._worker.next_id()
        context.sends[message_id] = SendNode(
            tuple(edges), next_key(), message_id, path, to, devices
        )
        if context.released:
            # A handler has outlived its context: see `Contexts.drop`. The message keeps its id, so
            # a pass that comes for it raises, and no gradient lacks this part.
            context.sends.clear()
        return message_id

    def _take(
        self,
        context: Context,
        frm: str,
        message_id: int,
        values: list[Any],
        slots: list[int],
        path: Path,
        duals: dict[int, CarriedDual],
    ) -> None:
        came, owners = frameworks.stand_ins(values) if frameworks.known else (values, None)
        flat: list[Tensor] = []
        for i, value in enumerate(came):
            if isinstance(value, Tensor):
                if i in duals:
                    flat.extend(duals[i].flattened(value))
                elif value.tangents:
                    flat.extend(flatten(value))
                else:
                    flat.append(value)
        recorded = flat if len(flat) == len(slots) else [flat[i] for i in slots]
        context.recvs[message_id] = RecvNode.join(recorded, message_id, path, frm, context)
        if context.released:
            # See `Contexts.drop`: nobody would remove it again.
            context.recvs.clear()
        if owners:
            frameworks.join(values, came, owners)

    def _carry_duals(self, to: str, values: list[Any]) -> None:
        for i, value in enumerate(values):
            if isinstance(value, Tensor) and value.tangents:
                values[i] = CarriedDual.of(snapshot(value), self._levels, to)
        if frameworks.known:
            frameworks.leave(values, self._worker, self._levels, to, is_recorded=False)
        if self._has_map(to):
            refuse_map(to, values)

    def _arrive_duals(self, values: list[Any]) -> dict[int, CarriedDual]:
        """Replace each CarriedDual by its dual tensor; return the CarriedDuals by index.

        A level may close while a message is under way; slots still count the tangents as sent.
        """
        found: dict[int, CarriedDual] = {}
        for i, value in enumerate(values):
            if isinstance(value, CarriedDual):
                values[i] = value.arrive(self._levels)
                found[i] = value
        return found


def _recorded(
    values: list[Any],
) -> tuple[list[Any], list[int], dict[int, Tensor | None], tuple[str | None, ...] | None]:
    """Return the edges and slots of a message's tensors that require grad, and two more results.

    The third has the values to be replaced, by index: None for Parameters that require grad, and a
    snapshot for each dual tensor, which must be sent as it was counted although another thread may
    close a level at any time. The fourth has the devices of the tensors with edges, if any is not
    on the CPU.
    """
    edges: list[Any] = []
    slots: list[int] = []
    replaced: dict[int, Tensor | None] = {}
    devices: list[str | None] | None = [] if "cupy" in sys.modules else None
    slot = 0
    for i, value in enumerate(values):
        flat: Sequence[Tensor] = (value,)
        if type(value) is not Tensor:
            if not isinstance(value, Tensor):
                continue
            if value.node is not None:
                replaced[i] = None
        if value.tangents:
            replaced[i] = dual = snapshot(value)
            flat = flatten(dual)
        for tensor in flat:
            node = tensor.node
            if node is not None:
                edges.append(tensor if node is LEAF else node)
                slots.append(slot)
                if devices is not None:
                    devices.append(device_of(tensor.array) if is_cupy(tensor.array) else None)
            slot += 1
    return edges, slots, replaced, tuple(devices) if devices and any(devices) else None


def _refuse_variables(to: str, values: list[Any]) -> None:
    if depend_on_variables(t for x in values if isinstance(x, Tensor) for t in flatten(x)):
        raise ContextError(
            f"expected a context around a call to worker {to!r} that takes part in what a "
            "transform differentiates, got none, or one that is released, so its gradient would be "
            "zero (a handler that is called under no_grad is in no context); write `with "
            "telegrad.distributed.autograd.context():` around the transform, or detach() what is "
            "sent"
        )


def _make_constant(values: list[Any]) -> None:
    frameworks.make_constant(values)
    for i, value in enumerate(values):
        if isinstance(value, Tensor):
            values[i] = without_history(value)
