"""The node of a Function's call: runs the user's backward and checks its gradients.

Users see Tensors, but the engine may carry raw arrays: cotangents are wrapped, and gradients
unwrapped again unless the pass is recorded or they have tangents.
"""

from collections.abc import Sequence
from typing import Any

from telegrad.arrays import backend_of, fit
from telegrad.autograd.function.context import FunctionCtx, savings_of
from telegrad.errors import GradientError, NotDifferentiable, ShapeError
from telegrad.graph import Bundle, Cotangent, Node, NodeHooks, next_key
from telegrad.tensors import Tensor, wrap
from telegrad.tensors.describe import no_tensor
from telegrad.tensors.late_bound import late_bound
from telegrad.tensors.recording.call_node import CallNode
from telegrad.tensors.recording.hooked import Hooked
from telegrad.tensors.shared import unshared


class FunctionNode(CallNode):
    """One recorded call of a Function; its `outputs` are (shape, dtype, backend)."""

    __slots__ = ("arguments", "context", "function")

    def __init__(
        self,
        function: Any,
        context: FunctionCtx,
        edges: tuple[Node, ...],
        wanted: tuple[int, ...],
        arguments: tuple[Any, ...],
    ) -> None:
        super().__init__(edges, wanted)
        self.function = function
        self.context = context
        self.arguments = arguments
        """(shape, dtype) of each argument; None for one that is no Tensor."""

    def name(self) -> str:
        return f"{self.function.__name__}Backward"

    def inputs_shown(self) -> Sequence[int]:
        return [i for i, argument in enumerate(self.arguments) if argument is not None]

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors that the call saved for its backward."""
        return self.context.saved_tensors

    def release(self) -> None:
        savings = savings_of(self.context)
        if savings.saved or savings.residuals is not None:
            self.freed = True
            savings.saved = savings.residuals = None

    def pull(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        return [
            g.array if g is not None and not g.is_dual else g for g in self.pull_recorded(cotangent)
        ]

    def pull_recorded(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        parts = cotangent if type(cotangent) is Bundle else (cotangent,)
        answer = self.function.backward(self.context, *map(self._shown, parts, self.outputs))
        gradients = self._counted(answer)
        return [self._checked(i, gradients[i]) for i in self.wanted]

    def _shown(self, part: Any, output: Any) -> Any:
        if part is not None:
            return part if isinstance(part, Tensor) else wrap(part)
        if output is None or not self.context.materialize_grads:
            return None
        shape, dtype, xp = output
        return wrap(xp.zeros(shape, dtype=dtype))

    def _counted(self, answer: Any) -> tuple[Any, ...]:
        gradients = tuple(answer) if isinstance(answer, (tuple, list)) else (answer,)
        expected = len(self.arguments)
        if len(gradients) > expected and all(g is None for g in gradients[expected:]):
            gradients = gradients[:expected]
        if len(gradients) != expected:
            raise GradientError(
                f"expected {expected} gradients from {self.function.__name__}.backward, one for "
                f"each argument of forward, got {len(gradients)}; return None for those without"
            )
        for i, (gradient, argument) in enumerate(zip(gradients, self.arguments)):
            if gradient is not None and argument is None:
                raise GradientError(
                    f"expected None from {self.function.__name__}.backward for argument {i}, which "
                    f"was no Tensor, got {type(gradient).__name__}"
                )
        return gradients

    def _checked(self, index: int, gradient: Any) -> Tensor | None:
        if gradient is None:
            return None
        where = f"from {self.function.__name__}.backward for argument {index}"
        if not isinstance(gradient, Tensor):
            raise no_tensor(gradient, where, "a Tensor or None")
        shape, dtype = self.arguments[index]
        if not _reduces_to(gradient.shape, shape):
            raise ShapeError(
                f"expected a gradient of shape {shape}, that of the argument, {where}, got shape "
                f"{gradient.shape}"
            )
        return fit(late_bound.namespace, unshared(gradient), shape, dtype)  # type: ignore[no-any-return]


def _reduces_to(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Tell whether broadcasting stretches `target` to `shape`, so that summing leads back."""
    if len(shape) < len(target):
        return False
    ends = shape[len(shape) - len(target) :]
    return all(length in (wide, 1) for length, wide in zip(target, ends))


def describe(output: Any) -> Any:
    """Return a result's (shape, dtype, backend), from which a node makes zeros like it."""
    if not isinstance(output, Tensor):
        return None
    return output.shape, output.dtype, backend_of(output.array)


class RefusingNode(Hooked):
    """Stands for a derivative that can't be differentiated again, and raises if a pass tries to."""

    __slots__ = ("__weakref__", "_message", "edges", "hooks", "key", "metadata")

    freed = False

    def __init__(self, edges: tuple[Node, ...], message: str) -> None:
        self.edges = edges
        self.key = next_key()
        self.hooks: NodeHooks | None = None
        self.metadata: dict[str, Any] | None = None
        self._message = message

    def name(self) -> str:
        return "OnceDifferentiable"

    def pull(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        raise NotDifferentiable(self._message)

    pull_recorded = pull
