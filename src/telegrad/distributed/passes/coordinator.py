"""The coordinator of passes on one worker: starts passes, and makes and answers requests.

A pass started here runs from its roots to its end on all workers. A request to another worker (with
gradients for some messages, or for none: "resume"; or a search for live sends) is answered when all
work that it caused, there and on further workers, has ended. This is Dijkstra and Scholten's
termination detection; its tree consists of the open requests. So when the root has its answers, the
whole system is at rest.

Gradients for one worker that are ready at about the same time are sent together. Gradients for the
asker are sent with the answer, unless other work is still under way or takes long: stages of a
pipeline work in parallel only if each sends its gradients as soon as it can.

A request's thread makes its own requests, then waits for their answers one by one and runs the
gradients in them; the first failure ends it, though others are still at work. Waiting uses futures,
so threads grow on demand and virtual time can pass.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from telegrad.distributed import frameworks
from telegrad.distributed.contexts.context import (
    BACKWARD_PHASE,
    CURRENT,
    ENCLOSING_PASSES,
    RELEASED,
    Context,
    Contexts,
)
from telegrad.distributed.contexts.message_nodes import Path
from telegrad.distributed.passes.commit import PassCommit
from telegrad.distributed.passes.gradient_codec import GradientCodec
from telegrad.distributed.passes.live_search import LiveSearch
from telegrad.distributed.passes.local_pass import (
    Departure,
    Departures,
    Feed,
    LocalPass,
)
from telegrad.distributed.passes.plan import PassPlan, as_plan
from telegrad.distributed.passes.region_pool import Pace
from telegrad.distributed.passes.report import Report
from telegrad.distributed.passes.request import PassRequest, PassRequests
from telegrad.engine import are_captured
from telegrad.errors import GradientError, InternalError, PassAborted, UsageError
from telegrad.rpc.calls.service import ServiceRequest
from telegrad.rpc.worker import Worker
from telegrad.tensors import Tensor
from telegrad.tensors.recording.modes import MODE, QUIET, recording

MODES = ("smart", "fast")
PASS_NAME = "telegrad::distributed::autograd::backward"
"""The name of a pass in profiles; its span has the context's id as well."""
_DEEPEST: Final = 200
"""How deep passes may be nested by hooks and rules. In one process Python's stack ends sooner; over
workers, each with its own stack, only a call's timeout would end them."""
GRADIENTS: Final = "autograd.gradients"
# Seconds that gradients for the asker wait to be sent with the answer. That saves a message and, at
# the asker, a thread, which is worth more than arriving sooner.
_RIDE_WITHIN: Final = 0.001


class PassCoordinator:
    """One worker's part in every pass: as the root, or as a worker that the pass reaches."""

    def __init__(
        self, worker: Worker, contexts: Contexts, commit: PassCommit, codec: GradientCodec
    ) -> None:
        self._worker = worker
        self._contexts = contexts
        self._commit = commit
        self._codec = codec
        self._requests = PassRequests(worker, commit.doubt)
        self._pace = Pace()
        worker.register_service(GRADIENTS, self._requests.handler(self._on_gradients))
        self._search = LiveSearch(worker, contexts, self._requests, self._find_local_pass)

    # The root: a pass starts here.

    def run(
        self,
        context: Context,
        roots: dict[Any, Any],
        *,
        retain_graph: bool | None,
        create_graph: bool,
        targets: dict[Any, Any] | None = None,
        remote_targets: Sequence[tuple[int, int]] = (),
        captures: bool = False,
        mode: str = "smart",
        finish: Callable[[LocalPass], None] | None = None,
    ) -> None:
        """Run a pass from this worker; return when it is committed everywhere.

        Arguments:
            context: The context that recorded the program.
            roots: The cotangent of each root, by its node.
            retain_graph: Whether another pass may follow; None for the value of `create_graph`.
            create_graph: Whether the gradients are recorded, to be differentiated again.
            targets: The nodes of this worker whose gradients are wanted, each with the name that it
                is captured under; None to accumulate those of all leaves in the context.
            remote_targets: (owner, reference) of each wanted input on another worker.
            captures: Whether gradients are returned, not accumulated.
            mode: "smart", or "fast" to raise an error if a call's result was not used.
            finish: Called with the root's local pass, at rest, before the commit.

        Raises:
            UsageError: If `mode` is something else.
            RecursionError: If passes are nested too deep.
            Exception: Any failure on any worker, after the pass was aborted.
        """
        if mode not in MODES:
            raise UsageError(f"expected a mode of {' or '.join(MODES)}, got {mode!r}")
        enclosing = ENCLOSING_PASSES.get()
        if enclosing and len(enclosing) >= _DEEPEST:
            raise RecursionError(
                f"expected at most {_DEEPEST} passes that hooks and rules start one for the other, "
                "got one more: does a rule start a pass that reaches the same rule again? Let it "
                "differentiate what it detached, or computed again"
            )
        plan = PassPlan(
            context.id,
            self._worker.next_id(),
            self._next_path(context),
            # Other workers accept nothing but a bool.
            bool(create_graph if retain_graph is None else retain_graph),
            bool(create_graph),
            None if targets is None else list(remote_targets),
            MODE.get().check_nan,
            enclosing,
            captures,
        )
        observer = self._worker.observer
        if observer is None:
            self._run_from_root(context, roots, plan, targets, mode, finish)
            return
        with observer.running(PASS_NAME, context.id):
            self._run_from_root(context, roots, plan, targets, mode, finish)

    def _next_path(self, context: Context) -> Path:
        """Return the path of a pass that starts now.

        It is unique, since a point of the program yields each ordinal once. No other path begins
        with it, since a pass, unlike a call, has no program of its own to number.
        """
        point = CURRENT.get()
        if point is not None and point.context is context:
            return point.step()
        # A thread that has only the context's id: it has no defined order among the others.
        with context.lock:
            context.pass_count += 1
            return (BACKWARD_PHASE - 1, self._worker.id, context.pass_count)

    def take_over(
        self,
        context: Context,
        roots: dict[Any, Any],
        deliver: Callable[[Any, Any, bool], None],
        keep_graph: bool,
        recorded: bool,
        targets: dict[Any, Any] | None,
    ) -> None:
        """Run a pass that began in this process alone and reached a value of this context.

        The context receives the gradients as always, and `deliver` those of this worker's leaves.
        `targets` maps each node to its tensor for ``backward``, and to None for ``grad``, whose
        gradients are not accumulated.
        """
        here: dict[Tensor, Tensor] = {}

        def finish(local_pass: LocalPass) -> None:
            if local_pass.has_loans:
                raise GradientError(
                    "expected leaves whose gradients are known when the pass ends, got some that "
                    "another framework averages with those in the context; call "
                    "telegrad.distributed.autograd.backward(context_id, [loss]) instead of "
                    "loss.backward()"
                )
            if targets is None:
                here.update(local_pass.staged)
                return
            here.update(local_pass.captured)
            for node, gradient in local_pass.captured.items():
                if targets[node] is not None:
                    local_pass.stage(targets[node], gradient)

        self.run(
            context,
            roots,
            retain_graph=keep_graph,
            create_graph=recorded,
            targets=None if targets is None else {node: node for node in targets},
            captures=are_captured(targets),
            finish=finish,
        )
        for node, gradient in here.items():
            owner = frameworks.framework_of(node)
            if owner is None:
                deliver(node, gradient, False)
            elif targets is None:
                frameworks.accumulate(node, gradient)

    def _run_from_root(
        self,
        context: Context,
        roots: dict[Any, Any],
        plan: PassPlan,
        targets: dict[Any, Any] | None,
        mode: str,
        finish: Callable[[LocalPass], None] | None,
    ) -> None:
        """Run a pass to its end on all workers; call `finish` before the commit."""
        local_pass = self._new_local_pass(context, plan)
        if targets:
            local_pass.targets.update(targets)
        report = Report()
        before, place = MODE.get(), CURRENT.set(local_pass.point)
        enclosing = ENCLOSING_PASSES.set((*plan.enclosing, plan.pass_id))
        try:
            try:
                context.passes[plan.pass_id] = local_pass
                MODE.set(recording(before, plan.recorded))
                self._run_to_rest(local_pass, local_pass.start(roots), report, [])
                if waiting := report.who_waits():
                    if mode == "fast":
                        raise self._search.unused_calls(local_pass, waiting, report)
                    self._correct(local_pass, waiting, report)
                if finish is not None:
                    finish(local_pass)
            except BaseException:
                self._commit.abort(context, plan.pass_id)
                raise
            finally:
                MODE.set(before)
            self._commit.commit(context, plan.pass_id, report.workers)
        finally:
            CURRENT.reset(place)
            ENCLOSING_PASSES.reset(enclosing)

    def _correct(self, local_pass: LocalPass, waiting: list[str], report: Report) -> None:
        """Step 6: find the live sends on all workers; only then continue from the waiting nodes."""
        self._search.run(local_pass, waiting, report)
        own = self._worker.name
        # These carry no gradients, but make workers drop the dead sends and go on.
        requests = [self._send(local_pass, x, [], False) for x in waiting if x != own]
        self._run_to_rest(local_pass, local_pass.receive(()), report, requests)
        if report.who_waits():
            raise InternalError(f"nodes still wait after the correction: {report.waiting}")

    # Running a pass until no request is open.

    def _run_to_rest(
        self,
        local_pass: LocalPass,
        ran: tuple[Departures, int],
        report: Report,
        requests: list[PassRequest],
        asker: str | None = None,
        began: float = 0.0,
    ) -> list[Departure]:
        """Send departures and run the gradients in answers, until no request is open.

        `ran` is the local pass's result when it was started or fed; `requests` are already open.
        Return the gradients to send with the answer to `asker`, whose request began at `began`.
        """
        own = self._worker.name
        leaving, change = ran
        report.change(own, change)
        riding: list[Departure] = []
        while True:
            # Read once, since another thread may change it at any time. With `waits` (below), this
            # thread promises to read the answer at once, so it must not run more of the pass first.
            is_paused = local_pass.is_paused
            if asker is not None:
                if asker in leaving:
                    riding += leaving.pop(asker)
                if riding and (
                    leaving
                    or requests
                    or (is_paused and self._worker.host.now() - began >= _RIDE_WITHIN)
                ):
                    # Other work is under way or takes long: the asker should not wait for it.
                    leaving[asker], riding = riding, []
            if leaving:
                waits = len(leaving) == 1 and not requests and not is_paused
                for to, group in leaving.items():
                    requests.append(self._send(local_pass, to, group, waits))
            if is_paused and not any(each.answer._done for each in requests):
                # No answer to handle first: one might be a failure, or work for other workers.
                leaving, change = local_pass.go_on()
                report.change(own, change)
                continue
            if not requests:
                return riding
            feeds = self._requests.take_next(requests).read(
                partial(self._feeds_of, local_pass, report)
            )
            leaving = {}
            if feeds:
                leaving, change = local_pass.receive(feeds)
                if change:
                    report.change(own, change)
            elif not requests and not is_paused:
                return riding

    def _feeds_of(
        self, local_pass: LocalPass, report: Report, frm: str, answer: Any, arrays: list[Any]
    ) -> list[Feed]:
        waiting, workers, entries = answer
        report.merge(waiting, workers)
        return self._codec.unpack(local_pass, frm, entries, arrays) if entries else []

    def _send(
        self, local_pass: LocalPass, to: str, group: list[Departure], waits: bool
    ) -> PassRequest:
        entries, arrays = self._codec.pack(local_pass, to, group)
        body = [local_pass.plan, entries]
        pass_request = self._requests.ask(to, GRADIENTS, body, arrays, waits=waits)
        local_pass.note_asked(pass_request.answer)
        return pass_request

    # Requests of other workers.

    def _find_local_pass(self, raw_plan: Any) -> LocalPass:
        """Return this worker's local pass; make it on first contact."""
        plan = as_plan(raw_plan)
        pass_id = plan.pass_id
        ENCLOSING_PASSES.set((*plan.enclosing, pass_id))
        context = self._contexts.get(plan.context_id)
        local_pass: LocalPass | None = context.passes.get(pass_id)
        if local_pass is None:
            local_pass = self._new_local_pass(context, plan)
            if plan.targets:
                # Without the lock: this may wait for a value that is still being made.
                self._find_targets(local_pass, plan.targets)
        with context.lock:
            if context.released:
                raise PassAborted(f"pass {pass_id} of context {context.id} {RELEASED}")
            if pass_id in context.outcomes:
                raise PassAborted(f"pass {pass_id} of context {context.id} has ended already")
            first: LocalPass = context.passes.setdefault(pass_id, local_pass)
        # Not reset, as above: each request's handler has its own contextvars.
        CURRENT.set(first.point)
        if not plan.recorded:
            MODE.set(QUIET)
        return first

    def _new_local_pass(self, context: Context, plan: PassPlan) -> LocalPass:
        observer = self._worker.observer
        watch = None if observer is None else observer.running
        return LocalPass(context, plan, self._worker.info, self._worker.host, self._pace, watch)

    def _find_targets(self, local_pass: LocalPass, targets: list[tuple[int, int]]) -> None:
        patience = self._worker.options.rpc_timeout or None
        for owner, reference in targets:
            if owner == self._worker.id:
                value = self._worker.references.value(reference).wait(patience)
                local_pass.want(frameworks.node_of_referent(value), reference)

    def _on_gradients(self, request: ServiceRequest) -> None:
        raw_plan, entries = request.header
        local_pass = self._find_local_pass(raw_plan)
        report = Report()
        asker = request.frm.name
        feeds = self._codec.unpack(local_pass, asker, entries, request.arrays)
        began = self._worker.host.now()
        ran = local_pass.receive(feeds)
        riding = self._run_to_rest(local_pass, ran, report, [], asker, began)
        answer, arrays = self._codec.pack(local_pass, asker, riding) if riding else ([], [])
        request.reply([report.waiting, list(report.workers), answer], arrays)
