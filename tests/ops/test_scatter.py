"""Gather and scatter along an axis: PyTorch's, with exact sums where an index repeats."""

import numpy as np
import pytest
import torch
from tests.ops.twins import assert_twins, complexes, normals

import telegrad as tg
from telegrad.errors import DTypeError, ShapeError

INDICES = np.asarray([[0, 2, 2], [1, 1, 0]])


@pytest.mark.parametrize("axis", [0, 1])
def test_gather_is_pytorchs(axis: int) -> None:
    chosen = INDICES if axis else INDICES % 2
    assert_twins(
        lambda x: tg.gather(x, chosen, axis=axis) ** 2,
        lambda x: torch.gather(x, axis, torch.tensor(chosen)) ** 2,
        normals(2, 3) if not axis else normals(4, 3),
    )


@pytest.mark.parametrize("axis", [0, 1])
def test_scatter_add_is_pytorchs(axis: int) -> None:
    chosen = INDICES if axis else INDICES % 2
    assert_twins(
        lambda x, v: tg.scatter_add(x, chosen, v, axis=axis) ** 2,
        lambda x, v: torch.scatter_add(x, axis, torch.tensor(chosen), v) ** 2,
        normals(2, 3),
        normals(2, 3, seed=1),
    )


def test_scatter_is_pytorchs_where_no_index_repeats() -> None:
    chosen = np.asarray([[0, 2, 1], [2, 1, 0]])
    assert_twins(
        lambda x, v: tg.scatter(x, chosen, v, axis=1) ** 2,
        lambda x, v: torch.scatter(x, 1, torch.tensor(chosen), v) ** 2,
        complexes(2, 3),
        complexes(2, 3, seed=1),
    )


def test_scatter_leaves_the_last_value_where_an_index_repeats_and_its_gradient() -> None:
    x = tg.zeros((1, 3))
    values = tg.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    y = tg.scatter(x, np.asarray([[1, 1, 0]]), values, axis=1)
    assert y.tolist() == [[3.0, 2.0, 0.0]]
    (gradient,) = tg.autograd.grad(y.sum(), values)
    assert gradient.tolist() == [[0.0, 1.0, 1.0]]


def test_repeated_indices_sum_exactly() -> None:
    # 2**24 + 1 is no float32: sums of ones must not be rounded on the way.
    indices = np.zeros((1, 4096), dtype=np.int64)
    x = tg.tensor([[1.0, 2.0]], requires_grad=True)
    (gradient,) = tg.autograd.grad(tg.gather(x, indices, axis=1).sum(), x)
    assert gradient.tolist() == [[4096.0, 0.0]]
    added = tg.scatter_add(tg.zeros((1, 2)), indices, tg.ones((1, 4096)), axis=1)
    assert added.tolist() == [[4096.0, 0.0]]


def test_many_places_are_added_in_the_same_order_as_few() -> None:
    rng = np.random.default_rng(5)
    rows, values = rng.integers(-7, 7, 300), rng.normal(size=(300, 5)).astype(np.float32)
    expected = np.zeros((7, 5), dtype=np.float32)
    np.add.at(expected, rows, values)
    got = tg.index_add(tg.zeros((7, 5)), tg.asarray(values), index=rows)
    assert got.numpy().tobytes() == expected.tobytes()
    columns = rng.integers(0, 5, (300, 4))
    expected = np.zeros((7, 5), dtype=np.float32)
    np.add.at(expected, (rows[:, None], columns), values[:, :1])
    got = tg.index_add(tg.zeros((7, 5)), tg.asarray(values[:, :1]), index=(rows[:, None], columns))
    assert got.numpy().tobytes() == expected.tobytes()


def test_put_along_axis_puts_where_take_along_axis_takes() -> None:
    x, values = normals(3, 4), normals(3, 2, seed=1)
    chosen = np.asarray([[0, 3], [1, 2], [3, 0]])
    expected = x.copy()
    np.put_along_axis(expected, chosen, values, axis=1)
    put = tg.put_along_axis(tg.asarray(x), chosen, tg.asarray(values), axis=1)
    np.testing.assert_array_equal(put.numpy(), expected)
    np.testing.assert_array_equal(tg.take_along_axis(put, tg.asarray(chosen), axis=1), values)


def test_put_along_axis_stretches_indices_and_values() -> None:
    x = tg.zeros((2, 3))
    assert tg.put_along_axis(x, np.asarray([[1]]), 5.0, axis=1).tolist() == [[0, 5, 0], [0, 5, 0]]


def test_indices_that_make_no_sense_are_refused() -> None:
    x = tg.zeros((2, 3))
    with pytest.raises(DTypeError, match="expected integers as indices in gather"):
        tg.gather(x, tg.asarray([[0.0]]), axis=1)
    with pytest.raises(ShapeError, match="expected indices with 2 axes in gather"):
        tg.gather(x, np.asarray([0]), axis=1)
    with pytest.raises(ShapeError, match="none but axis 1 longer"):
        tg.scatter(x, np.zeros((3, 1), dtype=np.int64), 1.0, axis=1)
    with pytest.raises(IndexError, match="expected indices from -3 to 2 on axis 1 in gather"):
        tg.gather(x, np.asarray([[3]]), axis=1)
    with pytest.raises(ShapeError, match="expected indices that broadcast to"):
        tg.put_along_axis(x, np.zeros((3, 1), dtype=np.int64), 1.0, axis=1)
