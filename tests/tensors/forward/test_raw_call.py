"""Raw duals on the fast paths: what they take, what they leave to others, what they keep."""

import gc
import operator
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import telegrad as tg
from telegrad.autograd import forward_ad, functional
from telegrad.errors import ShapeError
from telegrad.tensors.forward.levels import LEVELS

OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow]


def dual(*values: float) -> tg.Tensor:
    """A tensor of these values that moves by 1, 2, 3, …"""
    moves = tg.arange(1, len(values) + 1, dtype=tg.float64)
    return forward_ad.make_dual(tg.tensor(values, dtype=tg.float64), moves)


def tangent(x: tg.Tensor) -> Any:
    found = forward_ad.unpack_dual(x).tangent
    return None if found is None else found.detach().numpy()


@pytest.mark.parametrize("call", OPERATORS)
@pytest.mark.parametrize("number", [2, 1.5])
def test_a_number_on_either_side_is_a_constant(call: Callable[..., Any], number: float) -> None:
    with forward_ad.dual_level():
        x = dual(0.5, 2.0)
        constant = tg.full((2,), number, dtype=tg.float64)
        np.testing.assert_array_equal(tangent(call(x, number)), tangent(call(x, constant)))
        np.testing.assert_array_equal(tangent(call(number, x)), tangent(call(constant, x)))


def test_a_tangent_is_stretched_with_its_value() -> None:
    with forward_ad.dual_level():
        column, row = dual(1.0, 2.0).reshape((2, 1)), tg.ones(3, dtype=tg.float64)
        np.testing.assert_array_equal(tangent(column + row), [[1.0] * 3, [2.0] * 3])
        np.testing.assert_array_equal(tangent(row - column), [[-1.0] * 3, [-2.0] * 3])


@pytest.mark.parametrize("call", [operator.add, operator.matmul])
def test_shapes_that_do_not_fit_are_refused_as_without_tangents(call: Callable[..., Any]) -> None:
    with forward_ad.dual_level():
        x = dual(1.0, 2.0, 3.0, 4.0, 5.0, 6.0).reshape((2, 3))
        y = tg.ones((2, 2), dtype=tg.float64)
        with pytest.raises(ShapeError) as plain:
            call(forward_ad.unpack_dual(x).primal, y)
        with pytest.raises(ShapeError) as moving:
            call(x, y)
        assert str(moving.value) == str(plain.value)


def test_other_dtypes_and_other_levels_go_the_general_way() -> None:
    with forward_ad.dual_level():
        x = dual(1.0, 2.0)
        np.testing.assert_array_equal(tangent(x * tg.tensor([2, 3])), [2.0, 6.0])
        with forward_ad.dual_level():
            y = dual(3.0, 4.0)
            np.testing.assert_array_equal(tangent(x * y), [1.0, 4.0])
            np.testing.assert_array_equal(tangent(y * x), [1.0, 4.0])
            assert tangent(x * x) is None


def test_a_tangent_that_requires_grad_keeps_its_history() -> None:
    t = tg.tensor([1.0, 2.0], requires_grad=True)
    with forward_ad.dual_level():
        x = forward_ad.make_dual(tg.tensor([3.0, 4.0]), t)
        moved = forward_ad.unpack_dual(tg.sin(x) * x).tangent
        assert moved is not None
        (slope,) = tg.autograd.grad(moved.sum(), t)
    expected = functional.grad(lambda x: (tg.sin(x) * x).sum())(tg.tensor([3.0, 4.0]))
    np.testing.assert_allclose(slope, expected, rtol=1e-6)


def test_the_tangent_of_a_result_goes_with_the_result() -> None:
    with forward_ad.dual_level():
        x = dual(1.0, 2.0)
        result = tg.sin(x)
        assert result.tangents is not None
        [carrier] = result.tangents.values()
        gone = weakref.ref(carrier.array)
        gc.disable()
        try:
            del carrier, result
            assert gone() is None
        finally:
            gc.enable()


def test_a_long_computation_leaves_no_list_of_all_its_results() -> None:
    with forward_ad.dual_level():
        x = dual(1.0, 2.0)
        for _ in range(20_000):
            x = x + 1.0
        assert len(LEVELS.get()[-1].holders) <= 4097
        np.testing.assert_array_equal(tangent(x), [1.0, 2.0])


def test_what_outlives_its_level_is_ordinary_on_the_hot_paths() -> None:
    with forward_ad.dual_level():
        kept = tg.exp(dual(0.0, 1.0))
    assert not kept.tangents
    later = tg.sin(kept) * kept @ kept
    assert later.tangents is None
