"""Tensors made from data and by rule."""

import math
import pickle
from collections.abc import Callable
from typing import Any

import array_api_strict
import numpy as np
import pytest
import torch
from tests.interpreter import IS_LOCKED, needs_lock

import telegrad as tg
from telegrad import nn
from telegrad.errors import DeviceError, DTypeError, SavedValueChanged, ShapeError


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (1.5, "float32"),
        ([1, 2], "int64"),
        ([True], "bool"),
        (1j, "complex64"),
        ([[1, 2.5]], "float32"),
        ([], "float32"),
        (np.float64(1.0), "float64"),
        ([np.float64(1.0)], "float64"),
        (np.arange(2, dtype=np.int8), "int8"),
        (np.ones(2, dtype=">f8"), "float64"),
    ],
)
def test_python_numbers_take_the_defaults_and_numpy_values_keep_their_dtype(
    data: Any, dtype: str
) -> None:
    assert tg.asarray(data).dtype == np.dtype(dtype)
    assert tg.tensor(data).dtype == np.dtype(dtype)


def test_a_copy_does_not_see_later_writes_and_a_shared_array_does() -> None:
    source = np.zeros(2)
    copied, shared = tg.asarray(source), tg.asarray(source, copy=False)
    source[0] = 5.0
    assert copied.tolist() == [0.0, 0.0]
    assert shared.tolist() == [5.0, 0.0]


def test_a_shared_array_that_was_written_to_after_it_was_saved_raises_at_backward() -> None:
    source = np.ones(2)
    x = tg.tensor([1.0, 2.0], dtype=tg.float64, requires_grad=True)
    y = (x * tg.asarray(source, copy=False)).sum()
    source[0] = 7.0
    with pytest.raises(SavedValueChanged, match="multiply"):
        y.backward()


def test_sharing_what_would_need_a_copy_is_refused() -> None:
    with pytest.raises(ValueError, match="without a copy"):
        tg.asarray(np.ones(2), dtype=tg.float32, copy=False)
    with pytest.raises(ValueError, match="without a copy"):
        tg.asarray([1.0], copy=False)
    with pytest.raises(ValueError, match="without a copy"):
        tg.asarray(tg.ones(2), dtype=tg.float64, copy=False)


@pytest.mark.filterwarnings("ignore:You are comparing a array_api_strict dtype")
def test_sharing_an_array_whose_changes_could_not_be_found_is_refused() -> None:
    strict = pytest.importorskip("array_api_strict")
    source = strict.asarray([1.0, 2.0])
    with pytest.raises(ValueError, match="a NumPy array to share without a copy, got one of"):
        tg.asarray(source, copy=False)
    x = tg.asarray(source).requires_grad_()
    y = (x * x).sum()
    source[0] = 100.0
    y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 4.0]


def test_asarray_of_a_tensor_is_the_tensor_and_a_copy_keeps_the_history() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    assert tg.asarray(x) is x
    copied = tg.asarray(x, copy=True)
    copied.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0, 1.0]


def test_asarray_of_a_tensor_in_another_dtype_keeps_the_history() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    wide = tg.asarray(x, dtype=tg.float64)
    assert wide.dtype == tg.float64
    wide.sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == tg.float32


def test_a_list_of_tensors_is_stacked_with_their_histories() -> None:
    x = tg.tensor(2.0, requires_grad=True)
    made = tg.asarray([[x * x, tg.tensor(1.0)], [x, x]])
    assert made.tolist() == [[4.0, 1.0], [2.0, 2.0]]
    made.sum().backward()
    assert x.grad is not None
    assert x.grad.item() == 6.0
    assert not tg.tensor([x, x]).requires_grad


@pytest.mark.parametrize("data", [[[1], [2, 3]], "text", [None], np.array(["a"]), object()])
def test_what_is_not_numbers_is_refused(data: Any) -> None:
    with pytest.raises(DTypeError, match="expected"):
        tg.asarray(data)


MASKED = np.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False])


@pytest.mark.parametrize(
    "use",
    [
        lambda: tg.tensor(MASKED),
        lambda: tg.asarray(MASKED, copy=False),
        lambda: tg.tensor([MASKED, MASKED]),
        lambda: tg.ones(3) * MASKED,
        lambda: np.add(MASKED, tg.ones(3)),
        lambda: tg.sin(MASKED),
        lambda: tg.zeros(3).copy_(MASKED),
        lambda: nn.Parameter(MASKED),
    ],
)
def test_what_is_masked_is_no_number_of_a_tensor(use: Callable[[], Any]) -> None:
    with pytest.raises(DTypeError, match=r"1 of 3 elements are masked.*array\.filled\(value\)"):
        use()


def test_a_masked_array_of_which_nothing_is_masked_is_like_any_other() -> None:
    assert tg.tensor(np.ma.masked_array([1.0, 2.0])).tolist() == [1.0, 2.0]
    assert tg.tensor(MASKED.filled(0.0)).tolist() == [1.0, 0.0, 3.0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: tg.full((2,), 1j, dtype=tg.float32),
        lambda: tg.full_like(tg.zeros(2), np.complex64(1j)),
        lambda: tg.tensor([np.array([1j])], dtype=tg.float32),
        lambda: tg.asarray([[tg.tensor(1j)], [1.0]], dtype=tg.int64),
        lambda: tg.tensor((1.0, np.complex64(1j)), dtype=tg.float32),
        lambda: tg.linspace(0.0, 1j, 3, dtype=tg.float64),
        lambda: tg.asarray(np.array([1j, 2]), dtype=tg.float32),
        lambda: tg.tensor(array_api_strict.asarray([1j, 2]), dtype=tg.int64),
        lambda: nn.init.constant_(tg.zeros(2), 1j),
    ],
)
def test_complex_numbers_never_lose_their_imaginary_part_unasked(make: Callable[[], Any]) -> None:
    with pytest.raises(DTypeError, match=r"a complex dtype for complex values, got (float|int)"):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: tg.full((2,), 1e40, dtype=tg.float32),
        lambda: tg.full_like(tg.zeros(2), -1e40),
        lambda: tg.full_like(tg.zeros(2), 10**400),
        lambda: tg.full((2,), 2.0**128 - 2.0**103, dtype=tg.float32),
        lambda: tg.full((2,), 300.0, dtype=tg.uint8),
        lambda: tg.full((2,), math.nan, dtype=tg.int64),
        lambda: tg.full((2,), 1e40, dtype=tg.complex64),
        lambda: tg.full((2,), 1e40j, dtype=tg.complex64),
        lambda: tg.full((2,), np.float32(300), dtype=tg.uint8),
        lambda: nn.init.constant_(tg.zeros(2), 1e40),
        lambda: tg.zeros(2).__setitem__(0, 1e40),
        lambda: tg.zeros(2).__setitem__(0, np.float64(1e40)),
        lambda: tg.zeros(2, dtype=tg.int64).__setitem__(0, 1e30),
        lambda: tg.zeros(2).masked_fill(tg.tensor([True, False]), -1e40),
        lambda: tg.zeros(2).at[0].set(1e40),
    ],
)
def test_a_number_to_fill_with_that_the_dtype_can_not_hold_is_refused(
    make: Callable[[], Any],
) -> None:
    with pytest.raises(DTypeError, match=r"that (float32|complex64|uint8|int64) can hold, got "):
        make()


def test_an_integer_of_numpy_that_is_too_large_to_fill_with_is_refused_as_pythons_is() -> None:
    for number in (300, np.int64(300)):
        with pytest.raises(OverflowError):
            tg.full((2,), number, dtype=tg.int8)


def test_the_largest_numbers_and_infinity_can_be_filled_with() -> None:
    largest = float(np.finfo(np.float32).max)
    x = tg.zeros(2)
    x[0], x[1] = math.inf, largest
    assert x.masked_fill(tg.tensor([False, True]), -math.inf).tolist() == [math.inf, -math.inf]
    for number in (largest, -3.4028235e38, math.inf, -math.inf):
        assert tg.full((), number, dtype=tg.float32).item() == np.float32(number)
    assert tg.full((), 255.0, dtype=tg.uint8).item() == 255
    assert tg.full((), -1.5, dtype=tg.int8).item() == -1


def test_unknown_dtypes_and_devices_are_refused_by_name() -> None:
    with pytest.raises(DTypeError, match="float16"):
        tg.zeros(2, dtype=np.float16)
    with pytest.raises(DTypeError, match="banana"):
        tg.zeros(2, dtype="banana")
    with pytest.raises(DeviceError, match="'mars'"):
        tg.zeros(2, device="mars")


def test_constants_ranges_and_the_identity_are_those_of_numpy() -> None:
    pairs = [
        (tg.zeros((2, 3)), np.zeros((2, 3), np.float32)),
        (tg.ones(2, dtype=tg.int8), np.ones(2, np.int8)),
        (tg.full((2,), 3), np.full((2,), 3)),
        (tg.full(2, True), np.full(2, True)),
        (tg.full((), 1.5), np.asarray(1.5, np.float32)),
        (tg.eye(2, 3, k=1), np.eye(2, 3, k=1, dtype=np.float32)),
        (tg.arange(4), np.arange(4)),
        (tg.arange(1, 7, 2), np.arange(1, 7, 2)),
        (tg.arange(0.0, 1.0, 0.25), np.arange(0.0, 1.0, 0.25, dtype=np.float32)),
        (tg.arange(3, dtype=tg.float64), np.arange(3, dtype=np.float64)),
        (tg.linspace(0, 1, 5), np.linspace(0, 1, 5, dtype=np.float32)),
        (tg.linspace(0, 1, 4, endpoint=False), np.linspace(0, 1, 4, False, dtype=np.float32)),
        (tg.linspace(0, 1j, 3), np.linspace(0, 1j, 3, dtype=np.complex64)),
        (tg.zeros_like(tg.arange(3)), np.zeros(3, np.int64)),
        (tg.ones_like(tg.arange(3), dtype=tg.float32), np.ones(3, np.float32)),
        (tg.full_like(tg.ones((1, 2)), 7), np.full((1, 2), 7, np.float32)),
    ]
    for ours, expected in pairs:
        assert ours.dtype == expected.dtype
        np.testing.assert_array_equal(ours.numpy(), expected)
    assert tg.empty((2, 0)).shape == (2, 0)
    assert tg.empty_like(tg.ones(3, dtype=tg.int32)).dtype == tg.int32


def test_dlpack_goes_to_pytorch_and_numpy_and_back() -> None:
    x = tg.tensor([1.0, 2.0])
    assert torch.from_dlpack(x).tolist() == [1.0, 2.0]
    assert np.from_dlpack(x).tolist() == [1.0, 2.0]
    theirs = torch.tensor([3, 4])
    shared = tg.from_dlpack(theirs)
    theirs[0] = 9
    assert shared.tolist() == [9, 4]
    assert tg.from_dlpack(theirs, copy=True).dtype == tg.int64
    assert x.__dlpack_device__() == (1, 0)


@needs_lock
def test_what_leaves_by_dlpack_is_read_only_where_the_consumer_keeps_to_it() -> None:
    x = tg.tensor([1.0, 2.0])
    assert not np.from_dlpack(x).flags.writeable


def test_what_runs_backwards_leaves_by_dlpack_as_a_copy_that_runs_forwards() -> None:
    shared = tg.asarray(np.arange(3.0), copy=False)
    for turned in (shared[::-1], tg.asarray(np.arange(3.0)[::-1], copy=False)):
        taken = np.from_dlpack(turned)
        # Such strides end the process in PyTorch.
        assert taken.strides == (8,)
        assert torch.from_dlpack(turned).tolist() == taken.tolist() == [2.0, 1.0, 0.0]


def test_a_value_that_is_saved_leaves_by_dlpack_as_a_copy() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    weight = tg.tensor([3.0, 4.0])
    y = (x * weight).sum()
    torch.from_dlpack(weight)[0] = 7.0
    y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 4.0]


@pytest.mark.filterwarnings("ignore:You are comparing a array_api_strict dtype")
def test_an_array_whose_changes_could_not_be_found_leaves_by_dlpack_as_a_copy() -> None:
    strict = pytest.importorskip("array_api_strict")
    weight = tg.asarray(strict.asarray([3.0, 4.0]))
    x = tg.asarray(strict.asarray([1.0, 2.0])).requires_grad_()
    y = (x * weight).sum()
    np.from_dlpack(weight)[0] = 7.0
    with pytest.raises(BufferError, match="leave copy=False out"):
        np.from_dlpack(weight, copy=False)
    y.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3.0, 4.0]


def test_what_would_have_to_leave_by_dlpack_as_a_copy_does_not_leave_without_one() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    weight = tg.tensor([3.0, 4.0])
    _saved = x * weight
    turned = tg.asarray(np.arange(3.0)[::-1], copy=False)
    for tensor in (weight, turned):
        for take in (torch.from_dlpack, np.from_dlpack):
            with pytest.raises(BufferError, match="leave copy=False out"):
                take(tensor, copy=False)
    fresh = tg.tensor([3.0, 4.0])
    if IS_LOCKED:
        assert torch.from_dlpack(fresh, copy=False).tolist() == [3.0, 4.0]
    else:
        with pytest.raises(BufferError, match="without Python's lock"):
            torch.from_dlpack(fresh, copy=False)


@needs_lock
def test_a_value_that_left_by_dlpack_and_was_written_to_raises_at_backward() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    weight = tg.tensor([3.0, 4.0])
    outside = torch.from_dlpack(weight)
    y = (x * weight).sum()
    outside[0] = 7.0
    with pytest.raises(SavedValueChanged):
        y.backward()


def test_a_tensor_that_requires_grad_does_not_leave_by_dlpack() -> None:
    with pytest.raises(RuntimeError, match=r"detach\(\)"):
        np.from_dlpack(tg.ones(2).requires_grad_())


def test_a_part_of_a_shared_array_is_shared_too() -> None:
    source = np.ones(3)
    x = tg.tensor([1.0, 2.0], dtype=tg.float64, requires_grad=True)
    first, *others = tg.asarray(source, copy=False)
    part = tg.asarray(source, copy=False)[1:]
    y = (x * part).sum() * first
    assert len(others) == 2
    z = (x * tg.unstack(tg.asarray(source, copy=False))[0]).sum()
    source[:] = 7.0
    for each in (y, z):
        with pytest.raises(SavedValueChanged):
            each.backward()


def test_filling_with_a_tensor_keeps_its_history() -> None:
    x = tg.tensor(2.0, requires_grad=True)
    (tg.full((2, 3), x) + tg.full_like(tg.ones((2, 3)), x)).sum().backward()
    assert x.grad is not None
    assert x.grad.item() == 12.0
    assert tg.full(2, x, dtype=tg.float64).dtype == tg.float64
    with pytest.raises(ShapeError, match="0-d tensor to fill with"):
        tg.full(2, tg.ones(2))


def test_ranges_take_0d_tensors_that_have_no_history() -> None:
    assert tg.arange(tg.asarray(3)).tolist() == [0, 1, 2]
    assert tg.linspace(tg.asarray(0.0), 1, 3).tolist() == [0.0, 0.5, 1.0]
    with pytest.raises(RuntimeError, match="detach"):
        tg.linspace(tg.asarray(0.0).requires_grad_(), 1, 3)


def foreign(array: Any) -> Any:
    """The same array with an equal dtype that is another object, as pickles give."""
    return pickle.loads(pickle.dumps(array))


@pytest.mark.parametrize(
    "make",
    [
        lambda: tg.zeros(2, dtype=tg.float64),
        lambda: tg.tensor([1.0, 2.0], dtype="float64"),
        lambda: tg.tensor(np.ones(2, ">f8")),
        lambda: tg.ones(2).to(tg.float64),
        lambda: tg.tensor(foreign(np.ones(2))),
        lambda: tg.asarray(foreign(np.ones(2, np.float32)), dtype=foreign(np.dtype("float64"))),
        lambda: foreign(tg.tensor(np.ones(2))),
        lambda: foreign(tg.nn.Parameter(tg.tensor(np.ones(2)))),
    ],
)
def test_tensors_have_the_dtype_objects_of_numpy_which_quick_paths_know(
    make: Callable[[], Any],
) -> None:
    assert make().array.dtype is np.dtype("float64")


@pytest.mark.filterwarnings("error")
def test_pytorchs_tensors_are_taken_without_a_warning_and_never_lose_a_part() -> None:
    for given in (torch.tensor([1.0, 2.0]), [torch.tensor(1.0), torch.tensor(2.0)]):
        assert tg.tensor(given).tolist() == [1.0, 2.0]
        assert tg.asarray(given, dtype=tg.int64).tolist() == [1, 2]
    held = torch.tensor([1.0, 2.0])
    made = tg.asarray(held)
    held[0] = 9.0
    assert made.tolist() == [1.0, 2.0]
    with pytest.raises(DTypeError, match="a complex dtype for complex values, got float32"):
        tg.tensor(torch.tensor([1j]), dtype=tg.float32)
