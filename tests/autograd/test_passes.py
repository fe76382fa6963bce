"""Passes inside passes, and passes in many threads."""

import gc
import sys
import threading
import weakref

import numpy as np
import pytest
from tests.autograd.beside_torch import agree, leaf

import telegrad as tg
from telegrad.errors import GraphFreedError


def test_a_hook_may_run_a_pass_of_its_own():
    def scenario(lib):
        x, w = leaf(lib, [1.0, 2.0]), leaf(lib, [0.5, 0.5])

        def hook(gradient):
            with lib.enable_grad():
                (w * gradient * w).sum().backward()

        y = x * 3.0
        y.register_hook(hook)
        (y * y).sum().backward()
        return x.grad, w.grad

    agree(scenario)


def test_a_function_may_run_a_pass_inside_its_backward():
    def scenario(lib):
        class Inner(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return lib.sin(x) * x

            @staticmethod
            def backward(ctx, gradient):
                (x,) = ctx.saved_tensors
                with lib.enable_grad():
                    again = x.detach().requires_grad_()
                    (found,) = lib.autograd.grad((lib.sin(again) * again).sum(), again)
                return gradient * found

        x = leaf(lib, [0.2, 0.4])
        Inner.apply(Inner.apply(x)).sum().backward()
        return x.grad

    agree(scenario)


def test_passes_of_many_threads_that_share_leaves_lose_nothing():
    shared = tg.tensor(np.ones(50), requires_grad=True)
    threads, passes = 8, 40
    barrier = threading.Barrier(threads)
    failures = []

    def work(number):
        try:
            barrier.wait(timeout=30)
            for _ in range(passes):
                (shared * float(number)).sum().backward()
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
    assert not failures
    np.testing.assert_array_equal(shared.grad.numpy(), np.full(50, passes * sum(range(threads))))


def test_threads_may_run_passes_through_one_retained_graph():
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = tg.exp(tg.sin(x) * x).sum()
    expected = tg.autograd.grad(y, x, retain_graph=True)[0].tolist()
    results = []

    def work():
        for _ in range(30):
            results.append(tg.autograd.grad(y, x, retain_graph=True)[0].tolist())

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
    assert results == [expected] * 120


def test_a_pass_in_one_thread_through_a_graph_recorded_in_another():
    made = []

    def record():
        x = tg.tensor(3.0, requires_grad=True)
        made.append((x, x * x))

    worker = threading.Thread(target=record)
    worker.start()
    worker.join(timeout=30)
    x, y = made[0]
    y.backward()
    assert x.grad.item() == 6.0


def test_a_freed_graph_releases_its_values_without_the_garbage_collector():
    x = tg.tensor(np.ones(10), requires_grad=True)
    gc.disable()
    try:
        y = tg.exp(x)
        out = (y * y).sum()
        node = weakref.ref(y.grad_fn)
        out.backward()
        del y, out
        assert node() is None
    finally:
        gc.enable()


def test_a_graph_that_never_runs_is_freed_without_the_garbage_collector():
    x = tg.tensor(np.ones(10), requires_grad=True)
    gc.disable()
    try:
        y = tg.tanh(tg.exp(x))
        node = weakref.ref(y.grad_fn)
        del y
        assert node() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("chosen", [False, True])
@pytest.mark.parametrize("step", ["multiply", "where"])
def test_a_pass_whose_graph_another_frees_meanwhile_says_so(step, chosen, retain):
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    # The rule of where would take a mask that is gone for one that is False.
    y = x * x if step == "multiply" else tg.where(tg.asarray([True, True]), x, 0.0)
    loss = y.sum()
    others = [loss]

    def free(gradients):
        if others:
            others.pop().backward(inputs=[x])

    y.grad_fn.register_prehook(free)
    with pytest.raises(GraphFreedError, match=f"{step.capitalize()}Backward.*retain_graph=True"):
        loss.backward(inputs=[x] if chosen else None, retain_graph=retain)


def passes_within(levels):
    """Runs a pass whose hook runs a pass, and so on; says how many ran."""
    x = tg.tensor(2.0, requires_grad=True)
    y = x * x
    ran = []

    def descend(gradient):
        with tg.enable_grad():
            ran.append(1 + (passes_within(levels - 1) if levels > 1 else 0))

    y.register_hook(descend)
    y.backward()
    return ran[0]


def test_passes_within_passes_go_as_deep_as_the_limit_of_recursion():
    with pytest.raises(RecursionError):
        passes_within(400)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(100 * 400)
    try:
        assert passes_within(400) == 400
    finally:
        sys.setrecursionlimit(before)
