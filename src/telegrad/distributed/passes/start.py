"""Starting passes on one worker: from checked roots to a pass that has ended everywhere."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from telegrad.distributed import frameworks
from telegrad.distributed.contexts.context import BACKWARD_PHASE, CURRENT, ENCLOSING_PASSES, Context
from telegrad.distributed.contexts.message_nodes import Path
from telegrad.distributed.passes.coordinator import Carrier
from telegrad.distributed.passes.local_pass import LocalPass, PassPlan
from telegrad.engine import are_captured
from telegrad.errors import GradientError, UsageError
from telegrad.rpc.worker import Worker
from telegrad.tensors import Tensor
from telegrad.tensors.recording.modes import MODE

__all__ = ["Runner"]

MODES = ("smart", "fast")
PASS_NAME = "telegrad::distributed::autograd::backward"
"""What a profile calls a pass; its span has the context's id as well."""
_DEEPEST: Final = 200
"""How many passes may run one for the other. In one process Python's stack ends sooner; over
workers each may have one of its own, and there would be no end but a call's timeout."""


class Runner:
    """Runs the passes whose roots are on one worker."""

    def __init__(self, worker: Worker, carrier: Carrier) -> None:
        self._worker = worker
        self._carrier = carrier

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
        """Runs a pass and returns when it has ended everywhere; with targets, only they count."""
        if mode not in MODES:
            raise UsageError(f"expected a mode of {' or '.join(MODES)}, got {mode!r}")
        served = ENCLOSING_PASSES.get()
        if len(served) >= _DEEPEST:
            raise RecursionError(
                f"expected at most {_DEEPEST} passes that hooks and rules start one for the other, "
                "got one more: does a rule start a pass that reaches the same rule again? Let it "
                "differentiate what it detached, or computed again"
            )
        plan = PassPlan(
            context.id,
            self._worker.next_id(),
            self._next_path(context),
            create_graph if retain_graph is None else retain_graph,
            create_graph,
            None if targets is None else list(remote_targets),
            MODE.get().check_nan,
            served,
            captures,
        )
        observer = self._worker.observer
        token = ENCLOSING_PASSES.set((*served, plan.pass_id))
        try:
            if observer is None:
                self._carrier.run(context, roots, plan, targets, mode, finish)
                return
            with observer.running(PASS_NAME, context.id):
                self._carrier.run(context, roots, plan, targets, mode, finish)
        finally:
            ENCLOSING_PASSES.reset(token)

    def _next_path(self, context: Context) -> Path:
        """The place in the program of a pass that starts now.

        No other pass has it, since each place gives each ordinal once. No other path begins with
        it, since a pass is no call, and nothing is numbered below it.
        """
        place = CURRENT.get()
        if place is not None and place.context is context:
            return place.step()
        # A thread that was given the id alone: it has no defined order among the others.
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
        """Runs a pass that began as one of this process alone and met a value of this context.

        The context receives the gradients as always, and `deliver` those of this worker's leaves.
        `targets` names the tensor of each node for ``backward``, and None for ``grad``, whose
        gradients nobody keeps.
        """
        here: dict[Tensor, Tensor] = {}

        def finish(part: LocalPass) -> None:
            if part.has_lent:
                raise GradientError(
                    "expected leaves whose gradients are known when the pass ends, got some that "
                    "another framework averages with those in the context; call "
                    "telegrad.distributed.autograd.backward(context_id, [loss]) instead of "
                    "loss.backward()"
                )
            if targets is None:
                here.update(part.staged)
                return
            here.update(part.captured)
            for node, gradient in part.captured.items():
                if targets[node] is not None:
                    part.stage(targets[node], gradient)

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
                owner.accumulate(node, gradient)
