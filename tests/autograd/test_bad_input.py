"""Bad input to backward and grad: a clear error, and everything stays as it was."""

import numpy as np
import pytest

import telegrad as tg
from telegrad.errors import DTypeError, GradientError, GraphFreedError, ShapeError


@pytest.fixture
def x():
    """A leaf that has a gradient from an earlier pass."""
    leaf = tg.tensor([1.0, 2.0], requires_grad=True)
    (leaf * 3.0).sum().backward()
    return leaf


def check_unchanged(x, y):
    """The earlier gradient is there, and the graph of y can still run."""
    assert x.grad.tolist() == [3.0, 3.0]
    gradient = None if y.size == 1 else tg.ones_like(y)
    y.backward(gradient)
    assert x.grad.tolist() == [5.0, 7.0]


def test_a_root_that_is_no_scalar_needs_a_gradient(x):
    y = x * x
    with pytest.raises(GradientError, match=r"got a tensor of shape \(2,\); reduce it"):
        y.backward()
    check_unchanged(x, y)


def test_a_gradient_of_wrong_shape_is_refused(x):
    y = x * x
    with pytest.raises(ShapeError, match=r"expected shape \(2,\), that of its tensor,.*got \(3,\)"):
        y.backward(tg.ones(3))
    check_unchanged(x, y)


def test_a_gradient_of_wrong_dtype_is_refused(x):
    y = x * x
    with pytest.raises(DTypeError, match=r"float32.*got float64; convert it"):
        y.backward(tg.ones(2, dtype=tg.float64))
    check_unchanged(x, y)


def test_a_gradient_that_is_no_tensor_is_refused(x):
    y = x * x
    with pytest.raises(DTypeError, match=r"expected a Tensor or None as grad_tensors\[0\]"):
        y.backward([np.ones(2)])
    check_unchanged(x, y)


def test_a_number_as_the_gradient_is_refused(x):
    with pytest.raises(DTypeError, match=r"got float; write telegrad.tensor\(2.0\)"):
        (x * x).sum().backward(2.0)


def test_too_many_gradients_are_refused(x):
    y = x * x
    with pytest.raises(GradientError, match=r"one gradient for each of the 1 tensors.*got 2"):
        tg.autograd.backward([y], [tg.ones(2), tg.ones(2)])
    check_unchanged(x, y)


def test_a_root_that_does_not_require_grad_is_refused(x):
    y = (x * x).sum()
    with pytest.raises(GradientError, match="computed under no_grad"):
        tg.autograd.backward([y, tg.tensor(1.0)])
    check_unchanged(x, y)


def test_a_pass_without_roots_is_refused():
    with pytest.raises(GradientError, match="at least one tensor to differentiate"):
        tg.autograd.backward([])


def test_roots_that_are_no_tensors_are_refused(x):
    y = (x * x).sum()
    with pytest.raises(DTypeError, match=r"expected a Tensor as tensors\[1\], got float"):
        tg.autograd.backward([y, 1.0])
    with pytest.raises(DTypeError, match="expected a Tensor or a sequence"):
        tg.autograd.backward(1.0)
    check_unchanged(x, y)


def test_a_second_pass_through_a_freed_graph_is_refused(x):
    other = tg.tensor([1.0, 1.0], requires_grad=True)
    freed = other * other
    freed.sum().backward()
    y = (x * x).sum()
    with pytest.raises(
        GraphFreedError, match=r"MultiplyBackward.*pass retain_graph=True.*detach\(\)"
    ):
        tg.autograd.backward([y, freed.sum()])
    assert other.grad.tolist() == [2.0, 2.0]
    check_unchanged(x, y)


def test_an_unused_input_is_refused(x):
    y = (x * x).sum()
    with pytest.raises(GradientError, match="allow_unused=True"):
        tg.autograd.grad(y, [x, tg.tensor(1.0, requires_grad=True)])
    check_unchanged(x, y)


def test_empty_inputs_are_refused(x):
    y = (x * x).sum()
    with pytest.raises(GradientError, match="at least one tensor in inputs"):
        y.backward(inputs=[])
    with pytest.raises(GradientError, match="at least one tensor in inputs"):
        tg.autograd.grad(y, [])
    check_unchanged(x, y)


def test_an_input_that_does_not_require_grad_is_refused(x):
    y = (x * x).sum()
    with pytest.raises(GradientError, match="requires_grad_"):
        tg.autograd.grad(y, [tg.tensor(1.0)])
    with pytest.raises(GradientError, match="requires_grad_"):
        y.backward(inputs=[tg.tensor(1.0)])
    check_unchanged(x, y)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64"])
def test_integers_do_not_require_grad(dtype):
    t = tg.tensor([1, 0], dtype=dtype)
    with pytest.raises(DTypeError, match=f"got {dtype}; convert it first"):
        t.requires_grad_()
    assert not t.requires_grad
    with pytest.raises(DTypeError):
        tg.tensor([1, 0], dtype=dtype, requires_grad=True)


def test_shapes_that_do_not_broadcast_are_refused(x):
    y = x * x
    with pytest.raises(ShapeError, match=r"broadcast together in multiply, got \(2,\) and \(3,\)"):
        y * tg.ones(3)
    check_unchanged(x, y)


def test_an_in_place_change_of_a_leaf_outside_no_grad_is_refused(x):
    y = x * x

    def add():
        nonlocal x
        x += 1.0

    def assign():
        x[0] = 1.0

    for change in (add, assign, lambda: x.copy_(tg.zeros(2))):
        with pytest.raises(GradientError, match=r"change it under telegrad.no_grad"):
            change()
    assert x.tolist() == [1.0, 2.0]
    check_unchanged(x, y)


def test_a_saved_value_in_shared_memory_that_was_changed_raises_and_names_the_operation():
    memory = np.array([1.0, 2.0])
    shared = tg.asarray(memory, copy=False)
    x = tg.tensor([3.0, 4.0], dtype=tg.float64, requires_grad=True)
    y = (x * shared).sum()
    memory[0] = 10.0
    with pytest.raises(tg.errors.SavedValueChanged, match="multiply"):
        y.backward()
    assert x.grad is None


def test_an_assigned_gradient_must_fit(x):
    with pytest.raises(ShapeError, match=r"expected shape \(2,\).*for \.grad"):
        x.grad = tg.ones(3)
    with pytest.raises(DTypeError, match="expected a Tensor or None"):
        x.grad = np.ones(2)
    assert x.grad.tolist() == [3.0, 3.0]


def test_a_computed_value_is_not_made_a_constant(x):
    y = x * x
    with pytest.raises(GradientError, match=r"detach\(\)"):
        y.requires_grad_(False)
    check_unchanged(x, y)


def test_a_gradient_on_another_backend_is_refused():
    strict = pytest.importorskip("array_api_strict")
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    from telegrad.tensors import wrap

    with pytest.raises(tg.errors.DeviceError, match="expected device cpu of numpy"):
        y.backward(wrap(strict.ones(2, dtype=strict.float32)))
    assert x.grad is None
