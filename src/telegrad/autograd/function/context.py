"""``ctx``, which passes values from a Function's forward to its derivatives.

Users may set any attribute, so telegrad's own state is behind one private name.

A saved value that is neither argument nor result (an intermediate one) was computed unrecorded and
comes back as a constant. If its derivative matters, return it as a result, or compute it again in
backward.
"""

import copy
from collections.abc import Mapping
from typing import Any

from telegrad.autograd.function.saved import Savings
from telegrad.errors import DTypeError, GradientError
from telegrad.tensors import Tensor


class FunctionCtx:
    """The context of one call of a Function, passed to its methods; it takes any attribute."""

    def __init__(self, name: str, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        """For each argument of ``apply``, whether it requires grad."""
        self.materialize_grads = True
        self._savings = Savings(name)

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep arguments and results of ``forward`` (or None) for ``backward``."""
        self._savings.for_backward = _checked(self, tensors, "save_for_backward")

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keep arguments and results of ``forward`` (or None) for ``jvp``."""
        self._savings.for_forward = _checked(self, tensors, "save_for_forward")

    def save_residuals(self, residuals: Any) -> None:
        """Keep any other value for the derivatives; it is freed with the saved tensors.

        A plain attribute of ctx, in contrast, lives as long as the graph.
        """
        self._savings.residuals = residuals

    @property
    def residuals(self) -> Any:
        """The value that ``save_residuals`` kept; None if there is none."""
        return self._savings.kept_residuals()

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]:
        """The tensors that ``save_for_backward`` kept; in ``jvp``, ``save_for_forward``'s."""
        savings = self._savings
        # A tensor saved as None is None here, which the annotation ignores, as PyTorch's does.
        kept: Any = savings.restore() if savings.shown is None else savings.shown
        return kept  # type: ignore[no-any-return]

    def mark_non_differentiable(self, *outputs: Tensor) -> None:
        """Make these results constants; ``backward`` still receives an argument for each."""
        self._savings.constant_outputs = outputs

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Raise GradientError: arguments can't be changed in place."""
        raise GradientError(
            f"expected no mark_dirty in {self._savings.name}: arguments can't be changed in place "
            "here. Values do not alias, so a write inside forward changes nothing outside; return "
            "the new value and let the caller rebind it, x = F.apply(x)"
        )

    def set_materialize_grads(self, value: bool) -> None:
        """Set whether missing gradients and tangents are passed as zeros (default) or as None."""
        self.materialize_grads = bool(value)


def savings_of(ctx: FunctionCtx) -> Savings:
    """Return the state behind a context."""
    return ctx._savings


def _checked(ctx: FunctionCtx, tensors: tuple[Any, ...], method: str) -> tuple[Any, ...]:
    for i, each in enumerate(tensors):
        if each is not None and not isinstance(each, Tensor):
            raise DTypeError(
                f"expected Tensors or None for {method} of {savings_of(ctx).name}, got "
                f"{type(each).__name__} as number {i}; keep other values as attributes of ctx"
            )
    return tensors


def replace_attributes(ctx: FunctionCtx, by_id: Mapping[int, Any]) -> None:
    """Replace each Tensor that is an attribute by the one given for its id, if any."""
    for name, value in list(vars(ctx).items()):
        if isinstance(value, Tensor) and id(value) in by_id:
            setattr(ctx, name, by_id[id(value)])


def for_jvp(ctx: FunctionCtx, by_id: Mapping[int, Any]) -> FunctionCtx:
    """Return a copy whose saved tensors are replaced by those that one level's ``jvp`` sees."""
    twin = copy.copy(ctx)
    replace_attributes(twin, by_id)
    savings = savings_of(ctx)
    kept = savings.for_backward if savings.for_forward is None else savings.for_forward
    twin._savings = Savings(savings.name)
    twin._savings.residuals = savings.residuals
    twin._savings.shown = tuple(by_id.get(id(tensor), tensor) for tensor in kept)
    return twin
