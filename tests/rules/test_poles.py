"""Where a function has a value and no finite slope, its derivatives say so without a warning.

Values warn as NumPy does; derivatives never do, as in PyTorch.
"""

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tests.rules.table import TABLE

import telegrad
from telegrad.autograd import functional
from telegrad.rules import Primitive
from telegrad.tensors import Tensor, apply

POINTS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 1e-300)
ELEMENTWISE = [
    primitive
    for primitive in TABLE.values()
    if primitive.differentiable
    and primitive.elementwise
    and not primitive.options
    and None not in primitive.vjp
]


@pytest.fixture(autouse=True)
def _warnings_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def quiet_points(primitive: Primitive) -> Iterator[tuple[Tensor, ...]]:
    """The points where the value itself does not warn."""
    for values in itertools.product(POINTS, repeat=len(primitive.inputs)):
        point = tuple(telegrad.tensor([value], dtype=telegrad.float64) for value in values)
        try:
            apply(primitive, *point)
        except RuntimeWarning:
            continue
        yield point


@pytest.mark.parametrize("primitive", ELEMENTWISE, ids=lambda primitive: primitive.name)
def test_a_derivative_warns_of_nothing_where_the_value_does_not(primitive: Primitive) -> None:
    count = 0
    for point in quiet_points(primitive):
        ones = tuple(telegrad.ones_like(x) for x in point)

        def function(*inputs: Tensor) -> Tensor:
            return apply(primitive, *inputs)  # type: ignore[no-any-return]

        functional.jvp(function, point, ones)
        functional.vjp(function, *point)[1](ones[0])
        count += 1
    assert count, f"{primitive.name} warns everywhere"


def slope_by(mode: str, function: Callable[[Tensor], Tensor], x: Tensor) -> Any:
    if mode == "forward":
        return functional.jvp(function, (x,), (telegrad.ones_like(x),))[1]
    if mode == "forward twice":
        return slope_by("forward", lambda y: slope_by("forward", function, y), x)
    if mode == "forward over reverse":
        return functional.hvp(lambda y: telegrad.sum(function(y)), (x,), (telegrad.ones_like(x),))
    x = telegrad.tensor(x.numpy(), requires_grad=True)
    (first,) = telegrad.autograd.grad(telegrad.sum(function(x)), x, create_graph=True)
    return telegrad.autograd.grad(telegrad.sum(first), x, materialize_grads=True)[0]


@pytest.mark.parametrize("mode", ["forward", "forward twice", "forward over reverse", "reverse"])
@pytest.mark.parametrize(
    "function",
    [
        telegrad.sqrt,
        lambda x: x**0.5,
        lambda x: telegrad.hypot(x, x),
        lambda x: telegrad.std(x),
        lambda x: telegrad.linalg.vector_norm(x),
        lambda x: telegrad.cumulative_prod(x),
    ],
    ids=["sqrt", "pow", "hypot", "std", "norm", "cumulative_prod"],
)
def test_every_mode_is_silent_at_zero(function: Callable[[Tensor], Tensor], mode: str) -> None:
    assert slope_by(mode, function, telegrad.zeros(3)) is not None


def test_a_value_warns_as_that_of_numpy_does() -> None:
    with pytest.raises(RuntimeWarning, match="divide by zero encountered in log"):
        telegrad.log(telegrad.zeros(1))


def test_a_pass_leaves_the_warnings_of_its_caller_as_they_were() -> None:
    x = telegrad.zeros(2).requires_grad_()
    telegrad.sqrt(x).sum().backward()
    assert np.isinf(x.grad.numpy()).all()
    with pytest.raises(RuntimeWarning, match="divide by zero"):
        np.float64(1.0) / np.zeros(1)


def test_the_slope_of_a_quotient_may_overflow_where_its_value_does_not() -> None:
    x = telegrad.tensor([1e-30])
    for function in (telegrad.reciprocal, lambda y: 1.0 / y):
        assert functional.jvp(function, (x,), (telegrad.ones_like(x),))[1].tolist() == [-np.inf]


def test_an_infinite_gradient_passes_where_the_slope_of_tanh_is_one() -> None:
    x = telegrad.zeros(1).requires_grad_()
    telegrad.sqrt(telegrad.tanh(x)).sum().backward()
    assert x.grad.tolist() == [np.inf]


def test_a_last_factor_that_is_infinite_makes_the_slopes_of_the_others_infinite() -> None:
    x = telegrad.tensor([2.0, 3.0, 4.0, np.inf]).requires_grad_()
    telegrad.cumulative_prod(x).sum().backward()
    assert x.grad.tolist() == [np.inf, np.inf, np.inf, 24.0]
    tangent = functional.jvp(telegrad.cumulative_prod, (x.detach(),), (telegrad.ones(4),))[1]
    assert tangent.tolist() == [1.0, 5.0, 26.0, np.inf]
