"""Sorting, positions and distinct elements."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.ops.twins import assert_twins, normals

import telegrad as tg
from telegrad.errors import ShapeError, UsageError

TIED = np.array([3, 1, 2, 1, 3, 1])


@pytest.mark.parametrize("descending", [False, True])
def test_equal_elements_keep_their_order(descending: bool) -> None:
    order = tg.argsort(tg.asarray(TIED), descending=descending).tolist()
    expected = sorted(range(6), key=lambda i: -TIED[i] if descending else TIED[i])
    assert order == expected
    ours = tg.sort(tg.asarray(TIED), descending=descending).tolist()
    assert ours == sorted(TIED.tolist(), reverse=descending)


@pytest.mark.parametrize("descending", [False, True])
def test_sorting_is_differentiated_through_the_permutation(descending: bool) -> None:
    def ours(x: Any) -> Any:
        return tg.sort(x * x, axis=0, descending=descending) * tg.asarray([[1.0], [2.0], [3.0]])

    def theirs(x: Any) -> Any:
        weights = torch.tensor([[1.0], [2.0], [3.0]])
        return torch.sort(x * x, dim=0, descending=descending)[0] * weights

    assert_twins(ours, theirs, normals(3, 2))


def test_equal_elements_receive_the_gradients_of_their_own_places() -> None:
    x = tg.tensor([2.0, 1.0, 2.0], requires_grad=True)
    (tg.sort(x, descending=True) * tg.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0, 100.0, 10.0]


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_positions_of_extremes_are_those_of_numpy(axis: int | None) -> None:
    x = normals(3, 4)
    for name in ("argmax", "argmin"):
        ours = getattr(tg, name)(tg.asarray(x), axis=axis, keepdims=True)
        np.testing.assert_array_equal(ours.numpy(), getattr(np, name)(x, axis=axis, keepdims=True))
        assert ours.dtype == tg.int64
    assert not tg.argmax(tg.ones(2).requires_grad_()).requires_grad


def test_nonzero_gives_one_tensor_an_axis() -> None:
    x = np.array([[0, 1], [2, 0]])
    for ours, theirs in zip(tg.nonzero(tg.asarray(x)), np.nonzero(x), strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs)
    with pytest.raises(ShapeError, match="0-d"):
        tg.nonzero(tg.asarray(1))


def test_searchsorted_finds_the_places_on_either_side() -> None:
    line, values = tg.asarray([1.0, 2.0, 2.0, 3.0]), tg.asarray([2.0, 0.0, 9.0])
    assert tg.searchsorted(line, values).tolist() == [1, 0, 4]
    assert tg.searchsorted(line, values, side="right").tolist() == [3, 0, 4]
    mixed = tg.asarray([3.0, 1.0, 2.0])
    assert tg.searchsorted(mixed, values, sorter=tg.argsort(mixed)).tolist() == [1, 0, 3]
    with pytest.raises(UsageError, match="'left' or 'right'"):
        tg.searchsorted(line, values, side="middle")


def test_distinct_elements_come_with_places_counts_and_the_way_back() -> None:
    x = tg.asarray(TIED.reshape(2, 3))
    found = tg.unique_all(x)
    assert found.values.tolist() == [1, 2, 3]
    assert found.indices.tolist() == [1, 2, 0]
    assert found.counts.tolist() == [3, 1, 2]
    np.testing.assert_array_equal(found.values[found.inverse_indices].numpy(), x.numpy())
    assert tg.unique_values(x).tolist() == [1, 2, 3]
    assert tg.unique_counts(x).counts.tolist() == [3, 1, 2]
    assert tg.unique_inverse(x).inverse_indices.shape == (2, 3)


def test_a_distinct_element_sends_its_gradient_to_where_it_occurs_first() -> None:
    values = np.array([[3.0, 1.0, 2.0], [1.0, 3.0, 1.0]])
    for function in (
        tg.unique_values,
        lambda x: tg.unique_all(x).values,
        lambda x: tg.unique_counts(x).values,
        lambda x: tg.unique_inverse(x).values,
    ):
        x = tg.tensor(values, requires_grad=True)
        function(x).backward(tg.asarray([10.0, 20.0, 30.0], dtype=tg.float64))
        assert x.grad is not None
        assert x.grad.tolist() == [[30, 10, 20], [0, 0, 0]]
        directions = tg.asarray(np.arange(6.0).reshape(2, 3))
        _, tangent = tg.autograd.functional.jvp(function, x.detach(), directions)
        assert tangent.tolist() == [1, 2, 0]
