"""``x.at[index]``: changed copies, each place as often as the index names it."""

from typing import Any

import numpy as np
import pytest
from tests.ops.twins import normals

import telegrad as tg
from telegrad.errors import DTypeError, ShapeError
from telegrad.testing import gradient_check

UFUNCS: dict[str, Any] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "power": np.power,
    "min": np.minimum,
    "max": np.maximum,
}
INDICES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "a number": (1, (4,)),
    "a slice": (slice(0, 2), (2, 4)),
    "an ellipsis": ((..., 1), (3,)),
    "places, one twice": (np.asarray([2, 0, 2]), (3, 4)),
    "pairs, one three times": (
        (np.asarray([2, 0, 2, 2]), np.asarray([1, 1, 1, 1])),
        (4,),
    ),
    "a mask": (np.asarray([True, False, True]), (2, 4)),
}


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("name", UFUNCS)
def test_an_update_is_numpys_unbuffered_one(name: str, index: str) -> None:
    where, shape = INDICES[index]
    x, values = np.abs(normals(3, 4)) + 0.5, np.abs(normals(*shape, seed=1)) + 0.5
    expected = x.copy()
    UFUNCS[name].at(expected, where, values)
    got = getattr(tg.asarray(x).at[where], name)(tg.asarray(values))
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-14)


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("name", ["set", "add", "multiply", "divide", "max"])
def test_an_update_is_differentiable_twice(name: str, index: str) -> None:
    where, shape = INDICES[index]
    x, values = np.abs(normals(3, 4)) + 0.5, np.abs(normals(*shape, seed=1)) + 0.7
    gradient_check(lambda x, v: getattr(x.at[where], name)(v) ** 2, (x, values))


def test_set_leaves_the_last_value() -> None:
    x = tg.zeros(3)
    assert x.at[np.asarray([1, 1])].set(tg.tensor([5.0, 6.0])).tolist() == [0.0, 6.0, 0.0]


def test_the_tensor_itself_stays_as_it_is() -> None:
    x = tg.ones(3)
    x.at[0].set(5.0)
    x.at[0].add(5.0)
    x.at[0].multiply(5.0)
    assert x.tolist() == [1.0, 1.0, 1.0]


def test_get_gives_the_values_at_the_places() -> None:
    assert tg.arange(4).at[1:3].get().tolist() == [1, 2]


def test_apply_runs_a_function_on_the_places() -> None:
    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x.at[np.asarray([0, 2, 2])].apply(lambda part: part * 2)
    assert y.tolist() == [2.0, 2.0, 12.0]
    (gradient,) = tg.autograd.grad(y.sum(), x)
    assert gradient.tolist() == [2.0, 1.0, 4.0]


def test_values_are_stretched_and_numbers_keep_their_digits() -> None:
    x = tg.zeros((2, 2), dtype=tg.float64)
    assert x.at[0].set(0.1).tolist() == [[0.1, 0.1], [0.0, 0.0]]
    assert x.at[:].multiply(0.0).at[:, 1].add(0.1).tolist() == [[0.0, 0.1], [0.0, 0.1]]


def test_an_index_that_is_changed_later_does_not_change_the_gradient() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    index = np.asarray([0])
    y = x.at[index].multiply(3.0)
    index[0] = 1
    (gradient,) = tg.autograd.grad(y.sum(), x)
    assert gradient.tolist() == [3.0, 1.0]


def test_values_that_the_tensor_cannot_hold_are_refused() -> None:
    with pytest.raises(DTypeError, match=r"expected values that a tensor of int64 can hold"):
        tg.arange(3).at[0].set(0.5)
    with pytest.raises(DTypeError, match=r"in at\[...\].add, got complex64"):
        tg.ones(3).at[0].add(tg.asarray(1j))


def test_values_of_another_shape_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"expected values that broadcast to the \(2,\) places"):
        tg.ones(3).at[:2].multiply(tg.ones(3))
