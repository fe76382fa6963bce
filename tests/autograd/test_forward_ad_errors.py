"""Bad input to forward mode: what was expected, what came, what to do; and nothing has changed."""

import asyncio
import copy
import pickle
import threading

import numpy as np
import pytest
from tests.interpreter import HANDS_CONTEXTS_ON

import telegrad as tg
from telegrad.autograd import forward_ad as fw
from telegrad.autograd.functional import jvp
from telegrad.errors import (
    DeviceError,
    DTypeError,
    GradientError,
    LevelError,
    NotDifferentiable,
    ShapeError,
)
from telegrad.rules import NOT_DIFFERENTIABLE, Primitive
from telegrad.tensors import apply, wrap

X = tg.tensor([1.0, 2.0])


@pytest.fixture(autouse=True)
def no_level_is_left_open():
    yield
    with pytest.raises(LevelError):
        fw.exit_dual_level()


@pytest.mark.parametrize(
    ("tangent", "error", "message"),
    [
        (tg.tensor([1.0, 2.0, 3.0]), ShapeError, r"expected shape \(2,\).*got \(3,\)"),
        (tg.tensor(1.0), ShapeError, r"expected shape \(2,\).*got \(\); broadcast_to"),
        (tg.tensor([1.0, 2.0], dtype="float64"), DTypeError, "dtype float32.*got float64; convert"),
        (tg.tensor([1, 2]), DTypeError, "dtype float32.*got int64"),
        (tg.tensor([1.0j, 2.0]), DTypeError, "dtype float32.*got complex64"),
        (np.ones(2), DTypeError, "expected a Tensor as tangent of make_dual, got ndarray"),
    ],
)
def test_a_tangent_that_does_not_fit_is_refused(tangent, error, message):
    with fw.dual_level(), pytest.raises(error, match=message):
        fw.make_dual(X, tangent)
    assert not X.is_dual


def test_a_tangent_on_another_backend_is_refused():
    strict = pytest.importorskip("array_api_strict")
    tangent = wrap(strict.ones(2, dtype=strict.float32))
    with fw.dual_level(), pytest.raises(DeviceError, match=r"expected device .* of numpy"):
        fw.make_dual(X, tangent)


@pytest.mark.parametrize("dtype", ["bool", "int64", "uint8"])
def test_integer_primals_are_refused(dtype):
    primal = tg.tensor([1, 0], dtype=dtype)
    with fw.dual_level(), pytest.raises(DTypeError, match=f"got {dtype}; only such values"):
        fw.make_dual(primal, primal)


def test_a_primal_that_is_no_tensor_is_refused():
    with fw.dual_level(), pytest.raises(DTypeError, match="expected a Tensor as tensor"):
        fw.make_dual(1.0, X)
    with pytest.raises(DTypeError, match="expected a Tensor for unpack_dual"):
        fw.unpack_dual(1.0)


def test_make_dual_without_a_level_is_refused():
    with pytest.raises(LevelError, match=r"got none in this thread.*enter_dual_level\(\)"):
        fw.make_dual(X, X)


def test_a_level_that_is_not_open_is_refused():
    with fw.dual_level():
        for level in (1, -1, 7):
            with pytest.raises(LevelError, match=f"a level from 0 to 0 .* got {level}"):
                fw.make_dual(X, X, level=level)
            with pytest.raises(LevelError, match=f"a level from 0 to 0 .* got {level}"):
                fw.unpack_dual(X, level=level)


def test_a_second_tangent_at_the_same_level_is_refused():
    with fw.dual_level():
        dual = fw.make_dual(X, X)
        with pytest.raises(LevelError, match=r"tensor without a tangent at level 0.*of its own"):
            fw.make_dual(dual, X)
        with pytest.raises(LevelError, match="tangent without a tangent at level 0"):
            fw.make_dual(X, dual)
        assert fw.unpack_dual(dual).tangent.tolist() == [1.0, 2.0]


def test_leaving_when_none_is_open_is_refused():
    with pytest.raises(LevelError, match="an open dual level to leave, got none"):
        fw.exit_dual_level()
    with pytest.raises(LevelError, match="an open dual level to leave, got none"):
        fw.exit_dual_level(0)


def test_leaving_another_than_the_innermost_is_refused():
    outer, inner = fw.enter_dual_level(), fw.enter_dual_level()
    dual = fw.make_dual(X, X)
    with pytest.raises(LevelError, match=r"level 1, the innermost.*got 0; leave levels 1 to 1"):
        fw.exit_dual_level(outer)
    assert dual.is_dual
    fw.exit_dual_level(inner)
    with pytest.raises(LevelError, match=r"level 0, the innermost.*got 1; that one was left"):
        fw.exit_dual_level(inner)
    fw.exit_dual_level(outer)


def test_a_level_left_inside_its_own_block_is_told():
    with pytest.raises(LevelError, match="got it left already"), fw.dual_level() as level:
        fw.exit_dual_level(level)


def test_an_error_in_a_block_whose_level_was_left_inside_is_raised_as_it_is():
    with pytest.raises(ZeroDivisionError), fw.dual_level():
        fw.exit_dual_level()
        raise ZeroDivisionError


def test_a_level_left_open_inside_a_block_is_told():
    with pytest.raises(LevelError, match="got 1 still open"), fw.dual_level():
        fw.enter_dual_level()


def test_an_async_task_may_not_leave_the_level_of_its_parent():
    async def child():
        with pytest.raises(LevelError, match="entered by this thread or async task"):
            fw.exit_dual_level()

    async def main():
        with fw.dual_level():
            dual = fw.make_dual(X, X)
            await asyncio.create_task(child())
            assert dual.is_dual

    asyncio.run(main())


def test_an_inherited_level_that_was_left_is_told():
    async def child(left):
        await left.wait()
        with pytest.raises(LevelError, match="which the thread or async task that entered it has"):
            fw.make_dual(X, X)

    async def main():
        left = asyncio.Event()
        with fw.dual_level():
            task = asyncio.create_task(child(left))
            await asyncio.sleep(0)
        left.set()
        await task

    asyncio.run(main())


def test_another_thread_has_no_level():
    if HANDS_CONTEXTS_ON:
        pytest.skip("this Python hands levels on to new threads")
    failures = []

    def work():
        try:
            fw.make_dual(X, X)
        except LevelError as error:
            failures.append(error)

    with fw.dual_level():
        worker = threading.Thread(target=work)
        worker.start()
        worker.join(timeout=30)
    assert len(failures) == 1


def test_a_function_without_a_forward_derivative_says_so():
    primitive = Primitive(
        "twice_backwards_only",
        forward=lambda xp, x: x * 2.0,
        vjp=(lambda xp, g, s: g * 2.0,),
        jvp=NOT_DIFFERENTIABLE,
    )
    assert apply(primitive, X).tolist() == [2.0, 4.0]
    with fw.dual_level():
        dual = fw.make_dual(X, X)
        with pytest.raises(NotDifferentiable, match="twice_backwards_only has no forward-mode"):
            apply(primitive, dual)
        assert apply(primitive, fw.unpack_dual(dual).primal).tolist() == [2.0, 4.0]


@pytest.mark.parametrize(
    "leave", [tg.Tensor.numpy, np.asarray, np.from_dlpack, pickle.dumps, copy.deepcopy, copy.copy]
)
def test_a_tangent_is_not_dropped_where_a_tensor_leaves(leave):
    with fw.dual_level():
        dual = fw.make_dual(X, X)
        with pytest.raises(GradientError, match="expected a tensor without tangents"):
            leave(dual)
        leave(dual.detach())
    leave(dual)


def test_a_function_that_leaves_for_numpy_has_no_derivative_in_either_mode():
    def outside(x):
        return tg.asarray(np.sin(x.numpy())).sum()

    for transform in (tg.autograd.functional.grad(outside), lambda x: jvp(outside, x, X)):
        with pytest.raises(GradientError, match=r"detach\(\).numpy\(\)"):
            transform(X)


def test_tensor_makes_a_constant_of_a_tensor_in_either_mode():
    w = tg.tensor([3.0, 4.0], requires_grad=True)
    assert not tg.tensor(w * 2.0).requires_grad
    with fw.dual_level():
        assert not tg.tensor(fw.make_dual(X, X)).is_dual
        assert not tg.tensor(fw.make_dual(X, X), requires_grad=True).is_dual
