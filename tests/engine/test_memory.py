"""What a pass leaves behind in memory, and what it never shares."""

import gc
import threading
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

import telegrad
from telegrad.tensors import Tensor


@pytest.fixture
def no_garbage_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def leaf(*values: float) -> Tensor:
    return telegrad.tensor(list(values), requires_grad=True)


@pytest.mark.usefixtures("no_garbage_collector")
def test_a_graph_goes_when_its_last_tensor_goes() -> None:
    x = leaf(1.0, 2.0)
    middle = telegrad.exp(x)
    result = telegrad.sum(middle * middle)
    seen = [weakref.ref(middle.grad_fn), weakref.ref(result.grad_fn)]
    del middle, result
    assert [ref() for ref in seen] == [None, None]


@pytest.mark.usefixtures("no_garbage_collector")
def test_a_pass_frees_the_values_it_has_used_though_the_root_stays() -> None:
    x = leaf(1.0, 2.0)
    result = telegrad.sum(telegrad.sin(x * x))
    inner = result.grad_fn.edges[0]
    assert inner.name() == "SinBackward"
    saved = weakref.ref(inner.x)
    del inner
    assert saved() is not None
    result.backward()
    assert saved() is None


@pytest.mark.usefixtures("no_garbage_collector")
def test_a_saved_result_makes_no_circle() -> None:
    x = leaf(0.5)
    result = telegrad.tanh(telegrad.exp(x))
    node = weakref.ref(result.grad_fn)
    array = weakref.ref(result.array)
    del result
    assert node() is None
    assert array() is None


@pytest.mark.usefixtures("no_garbage_collector")
def test_a_recorded_pass_leaves_nothing_behind_once_its_results_go() -> None:
    x = leaf(1.0, 2.0)
    (gradient,) = telegrad.autograd.grad(telegrad.sum(x * x * x), x, create_graph=True)
    node = weakref.ref(gradient.grad_fn)
    (second,) = telegrad.autograd.grad(telegrad.sum(gradient), x)
    np.testing.assert_allclose(second.numpy(), [6.0, 12.0])
    del gradient
    assert node() is None


@pytest.mark.usefixtures("no_garbage_collector")
def test_a_pass_that_fails_frees_its_graph_with_the_error() -> None:
    x = leaf(1.0)
    result = telegrad.exp(x) * 2.0

    def fail(gradient: Tensor) -> None:
        raise ArithmeticError("on purpose")

    x.register_hook(fail)
    node = weakref.ref(result.grad_fn)
    with pytest.raises(ArithmeticError):
        result.backward(telegrad.tensor([1.0]))
    del result
    assert node() is None


def test_a_chain_of_a_million_operations_is_built_run_and_freed() -> None:
    x = leaf(1.0)
    y = x
    for _ in range(1_000_000):
        y = -y
    y.backward(telegrad.tensor([3.0]))
    assert x.grad is not None
    assert x.grad.item() == 3.0


def test_a_chain_that_was_never_run_is_freed_without_recursion() -> None:
    y = leaf(1.0)
    for _ in range(100_000):
        y = y * y
    node = weakref.ref(y.grad_fn)
    del y
    assert node() is None


def test_leaves_that_receive_the_same_gradient_never_share_its_memory() -> None:
    x, y, z = leaf(1.0, 2.0), leaf(3.0, 4.0), leaf(5.0, 6.0)
    start = telegrad.tensor([1.0, 1.0])
    ((x + y) + telegrad.reshape(z, (2,))).backward(start)
    arrays = [t.grad.array for t in (x, y, z)] + [start.array]  # type: ignore[union-attr]
    for i, one in enumerate(arrays):
        for other in arrays[i + 1 :]:
            assert not np.shares_memory(one, other)


def test_leaves_that_receive_the_same_view_never_share_its_memory() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    telegrad.sum(telegrad.reshape(x + y, (2, 1)) * 2.0).backward()
    assert x.grad is not None
    assert y.grad is not None
    assert not np.shares_memory(x.grad.array, y.grad.array)


def test_gradients_handed_to_the_caller_never_share_memory() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    start = telegrad.tensor([1.0, 1.0])
    first, second = telegrad.autograd.grad(x + y, [x, y], start)
    assert not np.shares_memory(first.array, second.array)
    assert not np.shares_memory(first.array, start.array)


def test_a_gradient_does_not_share_memory_with_what_the_graph_saved() -> None:
    x = leaf(1.0, 2.0)
    scale = telegrad.tensor([2.0, 3.0])
    telegrad.sum(x * scale).backward(retain_graph=True)
    assert x.grad is not None
    assert not np.shares_memory(x.grad.array, scale.array)


def test_threads_that_share_leaves_lose_no_gradient() -> None:
    x, y = leaf(1.0, 2.0, 3.0), leaf(1.0, 1.0, 1.0)
    threads, passes = 4, 200
    together = threading.Barrier(threads)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            together.wait(timeout=30)
            for _ in range(passes):
                telegrad.sum(x * y).backward()
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
    assert errors == []
    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy() * threads * passes)  # type: ignore
    np.testing.assert_array_equal(y.grad.numpy(), x.detach().numpy() * threads * passes)  # type: ignore


def test_a_pass_inside_a_pass_does_not_disturb_it() -> None:
    x, w = leaf(2.0), leaf(3.0)

    def backward_again(gradient: Tensor) -> Tensor:
        with telegrad.enable_grad():
            (w * w).backward(telegrad.tensor([1.0]))
        return gradient * 10.0

    y = x * x
    y.register_hook(backward_again)
    (y * 1.0).backward(telegrad.tensor([1.0]))
    assert x.grad is not None
    assert w.grad is not None
    assert (x.grad.item(), w.grad.item()) == (40.0, 6.0)


def test_two_runs_give_the_same_bits() -> None:
    def run() -> bytes:
        rng = np.random.default_rng(0)
        x = telegrad.tensor(rng.normal(size=50).astype(np.float32), requires_grad=True)
        parts = [telegrad.sin(x * float(i)) * float(10 ** (i % 7)) for i in range(20)]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        telegrad.sum(total).backward()
        return x.grad.array.tobytes()  # type: ignore[union-attr,no-any-return]

    assert run() == run()
