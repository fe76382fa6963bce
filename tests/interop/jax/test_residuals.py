"""What JAX keeps between a call and its backward pass: one run of the function, freed in time."""

import gc

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from tests.interop.jax import simulators

import telegrad as tg
from telegrad.errors import GraphFreedError
from telegrad.jax import from_jax

pytestmark = pytest.mark.usefixtures("_both_roads")


def leaf(array):
    return tg.tensor(array, requires_grad=True)


def test_a_call_and_its_backward_pass_run_the_function_once():
    before = simulators.runs()
    x = leaf(np.ones(3))
    y = simulators.counted(x)
    assert simulators.runs() - before == 1
    y.backward()
    assert simulators.runs() - before == 1
    assert np.allclose(x.grad.numpy(), np.exp(np.sin(1)) * np.cos(1))


def test_a_retained_graph_is_used_again_without_another_run():
    x = leaf(np.ones(3))
    before = simulators.runs()
    y = simulators.counted(x)
    y.backward(retain_graph=True)
    y.backward()
    assert simulators.runs() - before == 1
    with pytest.raises(GraphFreedError, match="countedBackward whose values were freed"):
        y.backward()


def test_residuals_are_freed_by_the_pass_though_the_result_lives():
    x = leaf(np.ones(100_000))
    f = from_jax(lambda x: jnp.sin(x) * jnp.cos(x))
    gc.collect()
    empty = sum(each.nbytes for each in jax.live_arrays())
    y = f(x)
    held = sum(each.nbytes for each in jax.live_arrays())
    assert held - empty >= 2 * x.nbytes
    y.sum().backward()
    gc.collect()
    # The result itself shares its memory with an array of JAX's.
    assert sum(each.nbytes for each in jax.live_arrays()) - empty <= y.nbytes


def test_residuals_are_freed_with_a_graph_that_no_pass_ran_over():
    x = leaf(np.ones(100_000))
    gc.collect()
    empty = sum(each.nbytes for each in jax.live_arrays())
    y = simulators.wide(x)
    del y
    gc.collect()
    assert sum(each.nbytes for each in jax.live_arrays()) == empty


def test_a_functions_residuals_are_freed_with_its_saved_tensors():
    class Kept:
        pass

    class Own(tg.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_residuals(Kept())
            return x * 2.0

        @staticmethod
        def backward(ctx, cotangent):
            assert isinstance(ctx.residuals, Kept)
            return cotangent * 2.0

    y = Own.apply(leaf(np.ones(2))).sum()
    y.backward()
    with pytest.raises(GraphFreedError, match="OwnBackward whose values were freed"):
        y.backward()
    assert not any(isinstance(each, Kept) for each in gc.get_objects())


def test_a_value_that_changed_since_does_not_change_the_gradient():
    x = leaf(np.array([1.0, 2.0]))
    y = from_jax(lambda x: (x**2).sum())(x)
    with tg.no_grad():
        x.copy_(tg.tensor([5.0, 5.0], dtype=tg.float64))
    y.backward()
    assert x.grad.tolist() == [2.0, 4.0]
