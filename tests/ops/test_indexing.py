"""Parts of tensors: taking them, and assignments, which give the tensor a new value and history."""

from typing import Any

import array_api_strict
import numpy as np
import pytest
import torch
from tests.ops.twins import assert_twins, complexes, normals

import telegrad as tg
from telegrad.errors import DTypeError, GradientError, ShapeError

X = np.arange(24.0).reshape(2, 3, 4)
MASK = X[..., 0] > 3

INDICES = [
    0,
    -1,
    (1, 2, 3),
    (slice(None), 1),
    slice(None, None, -1),
    (..., 2),
    (None, 1, ..., None),
    (slice(0, 5, 2), slice(1, None)),
    (),
    np.array([1, 0, 1]),
    (np.array([1, 0]), np.array([2, 2])),
    (slice(None), np.array([[0, 1], [2, 0]])),
    (np.array([0, 1]), slice(None), np.array([3, 0])),
    MASK,
    (0, MASK[0]),
    X > 7,
    [1, 0],
    np.array(1),
    True,
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_parts_are_those_of_numpy(index: Any) -> None:
    np.testing.assert_array_equal(tg.asarray(X)[index].numpy(), X[index])


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_an_assignment_changes_what_numpy_changes(index: Any) -> None:
    ours, theirs = tg.asarray(X), X.copy()
    ours[index] = -1
    theirs[index] = -1
    np.testing.assert_array_equal(ours.numpy(), theirs)
    np.testing.assert_array_equal(X, np.arange(24.0).reshape(2, 3, 4))


def test_tensors_serve_as_indices_and_masks() -> None:
    x = tg.asarray(X)
    np.testing.assert_array_equal(x[tg.asarray([1, 0])].numpy(), X[[1, 0]])
    np.testing.assert_array_equal(x[x > 7].numpy(), X[X > 7])
    np.testing.assert_array_equal(x[tg.asarray(1), :, tg.asarray([3])].numpy(), X[1, :, [3]])
    assert x[tg.asarray(1)].shape == (3, 4)


def test_an_index_out_of_range_or_of_floats_raises() -> None:
    with pytest.raises(IndexError):
        tg.ones(3)[3]
    with pytest.raises(IndexError):
        tg.ones(3)[tg.asarray([0.5])]


def test_a_place_taken_twice_receives_both_gradients() -> None:
    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (x[[0, 2, 0]] * tg.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [101.0, 0.0, 10.0]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_an_index_of_few_bits_reaches_its_part_of_a_long_axis(dtype: Any) -> None:
    x = tg.zeros(1000).requires_grad_()
    x[np.full(600, 3, dtype)].sum().backward()
    assert x.grad is not None
    assert x.grad[3].item() == 600.0


def _assigned(index: Any, place: Any = None) -> Any:
    def function(x: Any, v: Any) -> Any:
        y = x * 1
        y[index if place is None else place] = v
        return y * y

    return function


@pytest.mark.parametrize("index", [0, (slice(None), 1), (..., 0), slice(1, None)], ids=str)
def test_an_assignment_is_differentiated_as_in_pytorch(index: Any) -> None:
    shape = X[index].shape
    assert_twins(_assigned(index), _assigned(index), normals(2, 3, 4), normals(*shape))
    assert_twins(_assigned(index), _assigned(index), normals(2, 3, 4), normals())
    assert_twins(_assigned(index), _assigned(index), complexes(2, 3, 4), complexes(*shape))


def test_leading_axes_of_length_one_are_dropped_from_an_assigned_value() -> None:
    assert_twins(_assigned(0), _assigned(0), normals(2, 3), normals(1, 3))


def test_of_several_values_for_one_place_only_the_last_receives_a_gradient() -> None:
    x = tg.tensor([0.0, 0.0, 0.0], requires_grad=True)
    v = tg.tensor([[1.0], [2.0], [3.0]], requires_grad=True)
    y = x * 1
    y[tg.asarray([[0], [0], [1]])] = v
    assert y.tolist() == [2.0, 3.0, 0.0]
    (y * tg.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert x.grad is not None
    assert v.grad is not None
    assert x.grad.tolist() == [0.0, 0.0, 100.0]
    assert v.grad.tolist() == [[0.0], [1.0], [10.0]]


def test_a_mask_assignment_sends_gradients_to_what_stays_and_to_the_value() -> None:
    x = tg.tensor([1.0, -2.0, 3.0], requires_grad=True)
    fill = tg.tensor(5.0, requires_grad=True)
    y = x * 1
    y[y < 0] = fill
    (y * y).sum().backward()
    assert x.grad is not None
    assert fill.grad is not None
    assert x.grad.tolist() == [2.0, 0.0, 6.0]
    assert fill.grad.item() == 10.0


def test_a_view_does_not_see_a_later_assignment() -> None:
    x = tg.zeros(3)
    part = x[1:]
    x[1] = 7.0
    assert part.tolist() == [0.0, 0.0]
    assert x.tolist() == [0.0, 7.0, 0.0]


def test_a_number_is_assigned_in_the_precision_of_the_tensor() -> None:
    x = tg.zeros(1, dtype=tg.float64)
    x[0] = 16777217.0
    assert x.item() == 16777217.0


def test_assigning_to_a_leaf_that_requires_grad_is_refused() -> None:
    x = tg.ones(3).requires_grad_()
    with pytest.raises(GradientError, match="no_grad"):
        x[0] = 2.0
    with tg.no_grad():
        x[0] = 2.0
    assert x.tolist() == [2.0, 1.0, 1.0]
    assert x.is_leaf
    assert x.requires_grad


def test_assigning_complex_values_to_a_real_tensor_is_refused() -> None:
    with pytest.raises(DTypeError, match="complex"):
        tg.ones(3)[0] = 1j


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        (lambda x: x.__iadd__(2), 8.0),
        (lambda x: x.__isub__(2), 4.0),
        (lambda x: x.__imul__(2), 12.0),
        (lambda x: x.__itruediv__(2), 3.0),
        (lambda x: x.__ifloordiv__(4), 1.0),
        (lambda x: x.__imod__(4), 2.0),
        (lambda x: x.__ipow__(2), 36.0),
    ],
)
def test_in_place_operators_rebind_the_tensor(ours: Any, expected: float) -> None:
    x = tg.tensor(6.0)
    before = x.numpy()
    assert ours(x) is x
    assert x.item() == expected
    assert before.item() == 6.0


def test_an_in_place_operator_keeps_the_history() -> None:
    x = tg.tensor(3.0, requires_grad=True)
    y = x * 1
    y *= x
    y += 1
    y.backward()
    assert x.grad is not None
    assert x.grad.item() == 6.0


def test_an_in_place_operator_keeps_shape_and_kind_of_dtype() -> None:
    x = tg.ones(2)
    with pytest.raises(ShapeError, match="stretched"):
        x += tg.ones((2, 2))
    counts = tg.arange(2)
    with pytest.raises(DTypeError, match="float32"):
        counts += 0.5
    x += tg.ones(2, dtype=tg.float64)
    assert x.dtype == tg.float32
    assert x.tolist() == [2.0, 2.0]


def test_take_and_take_along_axis_are_those_of_numpy() -> None:
    x, places = tg.asarray(X), np.array([2, 0, 2])
    np.testing.assert_array_equal(tg.take(x, tg.asarray(places), axis=1).numpy(), X[:, places])
    assert tg.take(tg.arange(5), tg.asarray([4, 0])).tolist() == [4, 0]
    order = np.argsort(-X, axis=1)
    np.testing.assert_array_equal(
        tg.take_along_axis(x, tg.asarray(order), axis=1).numpy(),
        np.take_along_axis(X, order, axis=1),
    )


def test_taking_by_floats_without_an_axis_or_with_other_axes_is_refused() -> None:
    with pytest.raises(DTypeError, match="integers"):
        tg.take(tg.ones(3), tg.asarray([0.0]))
    with pytest.raises(ShapeError, match="axis"):
        tg.take(tg.ones((3, 2)), tg.asarray([0]))
    with pytest.raises(ShapeError, match="as many axes"):
        tg.take_along_axis(tg.ones((3, 2)), tg.asarray([0]))


@pytest.mark.parametrize("kind", [np.array, list, torch.tensor])
def test_a_change_of_the_index_after_the_call_does_not_change_the_gradient(kind: Any) -> None:
    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    places = kind([0, 1])
    y = x[places].sum()
    places[0] = 2
    y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0, 1.0, 0.0]


def test_a_change_of_another_librarys_index_does_not_change_the_gradient() -> None:
    x = tg.asarray(array_api_strict.asarray([1.0, 2.0, 3.0])).requires_grad_()
    places = array_api_strict.asarray([0, 1])
    y = x[places].sum()
    places[0] = 2
    y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("places", [[1], [[1]], [0, 0], 1, [True, False, True]], ids=str)
def test_a_torch_tensor_as_an_index_means_what_it_means_in_pytorch(places: Any) -> None:
    index = torch.tensor(places)
    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    theirs = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    assert x[index].tolist() == theirs[index].tolist()
    taken = theirs[index]
    taken.sum().backward()
    x[index].sum().backward()
    assert x.grad is not None
    assert theirs.grad is not None
    assert x.grad.tolist() == theirs.grad.tolist()
    put = tg.zeros(3)
    put[index] = tg.full(tuple(taken.shape), 7.0).requires_grad_()
    assert put.tolist() == torch.zeros(3).index_put((index,), torch.tensor(7.0)).tolist()
