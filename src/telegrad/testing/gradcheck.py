"""``gradient_check``: are the derivatives of a function right?

1. Evaluating the function around the inputs gives its Jacobian J (``differences``).
2. Reverse mode at a random cotangent v must give J^T v, and forward mode at a random tangent u must
   give J u.
3. The two must agree much more closely than differences can: <v, Ju> = <J^T v, u>.
4. For order 2 and more, the derivatives themselves are checked like this, as functions of the
inputs
   and of v or u: reverse over reverse, forward over reverse, reverse over forward, forward over
   forward.

v and u are dense, so a wrong entry anywhere in J shows, except for a coincidence of probability 0.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from telegrad.errors import DTypeError, UsageError
from telegrad.tensors import Tensor, wrap
from telegrad.tensors.recording.modes import enable_grad
from telegrad.testing.derivatives import Tensors, jvp, names_of_nodes, vjp
from telegrad.testing.differences import jacobian
from telegrad.testing.layout import Array, Layout, differentiable

_MODES = ("reverse", "forward")
_CLOSE = 1e-9
"""How closely two analytic results must agree, relative to their size."""


class GradientMismatch(AssertionError):
    """A derivative that differs from what the function itself says.

    Examples:
        >>> from telegrad.testing import GradientMismatch, gradient_check
        >>> try:
        ...     gradient_check(lambda x: x * x.detach(), tg.tensor([3.0]))
        ... except GradientMismatch as error:
        ...     print(type(error).__name__)
        GradientMismatch
    """


def gradient_check(
    f: Callable[..., Any],
    inputs: Any,
    *,
    modes: Sequence[str] = _MODES,
    order: int = 2,
    step: float = 1e-3,
    rtol: float = 1e-6,
    atol: float | None = None,
    complex_step: bool = True,
    seed: int = 0,
) -> None:
    """Raise GradientMismatch unless the derivatives of ``f(*inputs)`` are right, up to `order`.

    f must be smooth within ``2 * step`` of the inputs. The error says what the worst entry is, both
    values, and which operations were used.

    Arguments:
        f: Takes Tensors and returns a Tensor or a sequence of them.
        inputs: Its arguments; floating and complex ones are differentiated, in double precision,
            others are passed as they are.
        modes: "reverse", "forward" or both.
        order: The highest order to check.
        step: The step of the differences.
        rtol: The relative error that an entry may have.
        atol: The absolute error that it may have besides; by default 1e-6 of the largest derivative
            or value, but at least 1e-10, the precision of differences, and at most 1e-6.
        complex_step: Whether steps along the imaginary axis may be used where f is analytic.
        seed: The seed of the random directions.

    Raises:
        GradientMismatch: If a derivative is wrong.

    Examples:
        >>> from telegrad.testing import gradient_check
        >>> gradient_check(lambda x, y: tg.sin(x) @ y, (tg.ones(2, 3), tg.ones(3)))
    """
    given = [inputs] if isinstance(inputs, (Tensor, np.ndarray)) else list(inputs)
    arrays = [_as_array(x) for x in given]
    places = [i for i, array in enumerate(arrays) if differentiable(array)]
    modes = tuple(modes)
    _refuse_misuse(modes, order, places)

    def function(*chosen: Tensor) -> tuple[Tensor, ...]:
        arguments = [wrap(array) for array in arrays]
        for i, x in zip(places, chosen, strict=True):
            arguments[i] = x
        return _differentiable_results(f(*arguments))

    check = _Check(modes, step, rtol, atol, np.random.default_rng(seed))
    with enable_grad():
        check.run(function, [arrays[i] for i in places], "", order, complex_step)


def _as_array(x: Any) -> Array:
    array = np.array(x.array if isinstance(x, Tensor) else x)
    if differentiable(array):
        return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    return array


def _refuse_misuse(modes: tuple[str, ...], order: int, places: Sequence[int]) -> None:
    unknown = [mode for mode in modes if mode not in _MODES]
    if unknown or not modes:
        raise UsageError(f"expected modes out of {_MODES} for gradient_check, got {modes}")
    if order < 1:
        raise UsageError(f"expected an order of at least 1 for gradient_check, got {order}")
    if not places:
        raise DTypeError(
            "expected at least one floating or complex input for gradient_check, got none; Python "
            "integers have no derivative, write 2.0 for 2"
        )


def _differentiable_results(result: Any) -> tuple[Tensor, ...]:
    results = (result,) if isinstance(result, Tensor) else tuple(result)
    for each in results:
        if not isinstance(each, Tensor):
            raise DTypeError(
                "expected a Tensor or a sequence of Tensors from the function to be checked, got "
                f"{type(each).__name__}"
            )
    chosen = tuple(y for y in results if differentiable(y))
    if not chosen:
        raise DTypeError(
            "expected a floating or complex result of the function to be checked, got "
            f"{', '.join(str(y.dtype) for y in results) or 'none'}: it has no derivative to check"
        )
    return chosen


class _Check:
    """The settings of one check; ``run`` calls itself on the derivatives."""

    def __init__(
        self,
        modes: tuple[str, ...],
        step: float,
        rtol: float,
        atol: float | None,
        rng: np.random.Generator,
    ) -> None:
        self.modes = modes
        self.step = step
        self.rtol = rtol
        self.atol = atol
        self.rng = rng

    def run(
        self, f: Tensors, arrays: list[Array], trail: str, order: int, complex_step: bool
    ) -> None:
        """Check `f` at the arrays; `trail` says what f is the derivative of."""
        leaves = [wrap(array).requires_grad_() for array in arrays]
        recorded = f(*leaves)
        inside, outside = Layout(arrays), Layout([y.array for y in recorded])
        met = ", ".join(names_of_nodes(recorded)) or "no recorded operation"

        def vectors(vector: Array) -> Array:
            outputs = f(*map(wrap, inside.apart(vector)))
            return outside.flat([y.array for y in outputs])

        def analytic(vector: Array) -> Array:
            outputs = f(*map(wrap, inside.apart(vector)))
            return np.concatenate([y.array.reshape(-1) for y in outputs])

        u = self.rng.normal(size=inside.size)
        v = self.rng.normal(size=outside.size)
        possible = complex_step and inside.is_real and outside.is_real
        at = inside.flat(arrays)
        slopes = jacobian(vectors, at, self.step, u, analytic if possible else None)
        atol = self.atol
        if atol is None:
            # If all values are small, anything would pass with 1e-6.
            values = outside.flat([y.array for y in recorded])
            size = max(np.abs(each).max(initial=0.0) for each in (slopes, values))
            atol = 1e-6 * float(np.clip(size, 1e-4, 1.0))
        tangents = list(map(wrap, inside.apart(u)))
        cotangents = list(map(wrap, outside.apart(v)))
        of = f" of {trail}" if trail else ""
        back = forth = None
        if "reverse" in self.modes:
            gradients = vjp(f, leaves, cotangents, recorded=False)
            _refuse_other_kind(f"reverse mode{of}", gradients, arrays, met)
            back = inside.flat([g.array for g in gradients])
            self._compare(f"reverse mode{of}", "input", inside, slopes.T @ v, back, atol, met)
            again = vjp(f, leaves, cotangents, recorded=True)
            recorded_back = inside.flat([g.array for g in again])
            _refuse_other_values(f"reverse mode{of} with create_graph", back, recorded_back, met)
        if "forward" in self.modes:
            results = jvp(f, list(map(wrap, arrays)), tangents)
            _refuse_other_kind(f"forward mode{of}", results, [y.array for y in recorded], met)
            forth = outside.flat([t.array for t in results])
            self._compare(f"forward mode{of}", "output", outside, slopes @ u, forth, atol, met)
        if back is not None and forth is not None:
            _refuse_misfit(of, v, forth, back, u, met)
        if order > 1:
            self._run_derivatives(f, arrays, inside.apart(u), outside.apart(v), of, order - 1)

    def _run_derivatives(
        self,
        f: Tensors,
        arrays: list[Array],
        tangents: list[Array],
        cotangents: list[Array],
        of: str,
        order: int,
    ) -> None:
        count = len(arrays)

        def gradient(*values: Tensor) -> tuple[Tensor, ...]:
            return vjp(f, values[:count], values[count:], recorded=True)

        def tangent(*values: Tensor) -> tuple[Tensor, ...]:
            return jvp(f, values[:count], values[count:])

        if "reverse" in self.modes:
            trail = f"the reverse-mode derivative{of}"
            self.run(gradient, [*arrays, *cotangents], trail, order, False)
        if "forward" in self.modes:
            trail = f"the forward-mode derivative{of}"
            self.run(tangent, [*arrays, *tangents], trail, order, False)

    def _compare(
        self,
        what: str,
        side: str,
        layout: Layout,
        expected: Array,
        got: Array,
        atol: float,
        met: str,
    ) -> None:
        off = np.abs(got - expected)
        allowed = atol + self.rtol * np.abs(expected)
        bad = ~(off <= allowed)
        if not bad.any():
            return
        worst = int(np.argmax(np.where(bad, np.where(np.isnan(off), np.inf, off / allowed), 0)))
        raise GradientMismatch(
            f"{what} is wrong in {int(bad.sum())} of {bad.size} entries, worst at {side} "
            f"{layout.place(worst)}: expected {expected[worst]:.10g} (by differences of the "
            f"function), got {got[worst]:.10g}, with {allowed[worst]:.1g} allowed between them; "
            f"operations met: {met}"
        )


def _refuse_other_kind(
    what: str, results: Sequence[Tensor], like: Sequence[Array], met: str
) -> None:
    for i, (result, array) in enumerate(zip(results, like, strict=True)):
        if result.shape != array.shape or result.dtype != array.dtype:
            raise GradientMismatch(
                f"{what} gave shape {result.shape} and dtype {result.dtype} at {i}, where "
                f"{array.shape} and {array.dtype} was expected; operations met: {met}"
            )


def _refuse_other_values(what: str, expected: Array, got: Array, met: str) -> None:
    if not np.allclose(got, expected, rtol=_CLOSE, atol=_CLOSE, equal_nan=True):
        worst = int(np.argmax(np.abs(got - expected)))
        raise GradientMismatch(
            f"{what} differs from the same without: expected {expected[worst]:.17g}, got "
            f"{got[worst]:.17g} at coordinate {worst}; operations met: {met}"
        )


def _refuse_misfit(of: str, v: Array, forth: Array, back: Array, u: Array, met: str) -> None:
    forward, reverse = float(v @ forth), float(back @ u)
    norm = np.linalg.norm
    if not abs(forward - reverse) <= _CLOSE * (1 + norm(v) * norm(forth) + norm(back) * norm(u)):
        raise GradientMismatch(
            f"forward and reverse mode{of} don't fit: <v, Ju> is {forward:.17g} and <J^T v, u> is "
            f"{reverse:.17g}; operations met: {met}"
        )
