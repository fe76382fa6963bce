"""Sums, products, spreads and extremes, running and over axes."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.ops.twins import assert_twins, complexes, normals

import telegrad as tg
from telegrad.errors import ShapeError, UsageError

X = normals(2, 3, 4)


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), ()])
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "max", "min", "all", "any"])
def test_values_over_axes_are_those_of_numpy(name: str, axis: Any) -> None:
    for keepdims in (False, True):
        ours = getattr(tg, name)(tg.asarray(X), axis=axis, keepdims=keepdims)
        theirs = getattr(np, name)(X, axis=axis, keepdims=keepdims)
        assert ours.shape == np.shape(theirs)
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "total"),
    [("int8", "int64"), ("uint8", "uint64"), ("bool", "int64"), ("float32", "float32")],
)
def test_small_integers_are_summed_in_the_default_width(dtype: str, total: str) -> None:
    x = tg.ones(3, dtype=dtype)
    for function in (tg.sum, tg.prod, tg.cumulative_sum, tg.cumulative_prod):
        if dtype != "bool" or function in (tg.sum, tg.prod):
            assert function(x).dtype == np.dtype(total)
        assert function(x, dtype=tg.int16).dtype == tg.int16


def test_an_axis_that_is_not_there_or_named_twice_is_refused() -> None:
    with pytest.raises(ShapeError, match="from -2 to 1"):
        tg.sum(tg.ones((2, 2)), axis=2)
    with pytest.raises(ShapeError, match="once"):
        tg.sum(tg.ones((2, 2)), axis=(0, -2))


@pytest.mark.parametrize(
    "values",
    [[2.0, 3.0, 4.0], [2.0, 0.0, 4.0, 5.0], [0.0, 3.0, 0.0, 2.0], [0.0, 0.0, 0.0, 1.0]],
)
def test_products_with_zeros_are_differentiated_exactly(values: list[float]) -> None:
    x = np.array(values)
    assert_twins(tg.prod, torch.prod, x)
    assert_twins(tg.cumulative_prod, lambda t: torch.cumprod(t, 0), x)


def test_a_third_derivative_of_a_product_with_three_zeros_is_exact() -> None:
    x = tg.tensor([0.0, 0.0, 0.0, 5.0], dtype=tg.float64, requires_grad=True)
    value: Any = tg.prod(x)
    for place in range(3):
        (gradient,) = tg.autograd.grad(value, x, create_graph=True)
        value = gradient[place]
    assert value.item() == 5.0


def test_running_products_of_complex_values_follow_pytorch() -> None:
    assert_twins(
        lambda x: tg.cumulative_prod(x, axis=1), lambda t: torch.cumprod(t, 1), complexes(2, 3)
    )
    assert_twins(tg.prod, torch.prod, complexes(3))


def test_running_values_may_start_with_the_initial_one() -> None:
    x = tg.asarray([2.0, 3.0])
    assert tg.cumulative_sum(x, include_initial=True).tolist() == [0.0, 2.0, 5.0]
    assert tg.cumulative_prod(x, include_initial=True).tolist() == [1.0, 2.0, 6.0]
    with pytest.raises(ShapeError, match="axis to run along"):
        tg.cumulative_sum(tg.ones((2, 2)))


@pytest.mark.parametrize("correction", [0, 1, 0.5])
def test_spreads_follow_pytorch(correction: float) -> None:
    for name in ("var", "std"):

        def ours(x: Any, name: str = name) -> Any:
            return getattr(tg, name)(x, axis=1, correction=correction)

        def theirs(x: Any, name: str = name) -> Any:
            return getattr(torch, name)(x, 1, correction=correction)

        assert_twins(ours, theirs, normals(2, 4))
        assert_twins(ours, theirs, complexes(2, 4))


def test_equal_values_have_a_standard_deviation_without_slope() -> None:
    x = tg.tensor([2.0, 2.0, 2.0], requires_grad=True)
    tg.std(x).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 0.0, 0.0]


def test_equal_extremes_share_the_gradient() -> None:
    x = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    assert_twins(lambda a: tg.max(a, axis=1), lambda a: torch.amax(a, 1), x, second=False)
    assert_twins(lambda a: tg.min(a, axis=1), lambda a: torch.amin(a, 1), x, second=False)


def test_differences_are_those_of_numpy_and_differentiated_as_in_pytorch() -> None:
    for options in ({}, {"axis": 0}, {"n": 2}, {"n": 0}):
        np.testing.assert_allclose(
            tg.diff(tg.asarray(X), **options).numpy(), np.diff(X, **options), rtol=1e-12
        )
    edge = np.zeros((2, 3, 1))
    ours = tg.diff(tg.asarray(X), prepend=tg.asarray(edge), append=tg.asarray(edge))
    np.testing.assert_allclose(ours.numpy(), np.diff(X, prepend=edge, append=edge))
    assert_twins(lambda x: tg.diff(x, n=2), lambda x: torch.diff(x, n=2), normals(2, 5))
    with pytest.raises(UsageError, match="n=-1"):
        tg.diff(tg.ones(3), n=-1)


def test_counts_and_truth_are_constants() -> None:
    x = tg.tensor([[0.0, 2.0], [3.0, 4.0]], requires_grad=True)
    assert tg.count_nonzero(x, axis=0).tolist() == [1, 2]
    assert not tg.count_nonzero(x).requires_grad
    assert tg.all(x, axis=1).tolist() == [False, True]
    assert tg.any(x).item() is True
