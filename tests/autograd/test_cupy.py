"""Derivatives of CuPy's arrays: the same rules, run on the GPU."""

import numpy as np
import pytest
from tests.autograd.test_other_namespaces import COMPUTATIONS
from tests.devices import cupy, on_a_gpu

import telegrad as tg
from telegrad.autograd import functional

pytestmark = on_a_gpu


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_derivatives_on_the_gpu_equal_those_in_numpy(name):
    data, direction = [0.5, 1.5, -0.25], [1.0, -2.0, 0.5]
    ours = [tg.tensor(each, dtype=tg.float64) for each in (data, direction)]
    theirs = [tg.asarray(cupy.asarray(each, dtype=cupy.float64)) for each in (data, direction)]
    found = COMPUTATIONS[name](*theirs)
    assert isinstance(found.array, cupy.ndarray)
    np.testing.assert_allclose(
        cupy.asnumpy(found.array), COMPUTATIONS[name](*ours).numpy(), rtol=1e-12
    )


def test_a_matrix_product_and_its_gradient_stay_on_the_gpu():
    numbers = np.random.default_rng(0).standard_normal((2, 64, 64))

    def loss(a, b):
        return tg.tanh(a @ b).sum()

    ours = functional.grad(loss, argnums=(0, 1))(*(tg.tensor(each) for each in numbers))
    theirs = functional.grad(loss, argnums=(0, 1))(
        *(tg.asarray(cupy.asarray(each)) for each in numbers)
    )
    for mine, other in zip(ours, theirs):
        assert isinstance(other.array, cupy.ndarray)
        np.testing.assert_allclose(cupy.asnumpy(other.array), mine.numpy(), rtol=1e-9, atol=1e-12)


def test_a_tensor_has_a_copy_of_the_array_it_was_made_from():
    array = cupy.ones(2)
    tensors = [tg.asarray(array), tg.tensor(array)]
    array[0] = 5.0
    assert all(isinstance(x.array, cupy.ndarray) for x in tensors)
    assert [x.tolist() for x in tensors] == [[1.0, 1.0], [1.0, 1.0]]


def test_the_numbers_can_be_read_and_printed():
    x = tg.asarray(cupy.asarray([1.0, 2.0], dtype=cupy.float32))
    assert repr(x).startswith("tensor([1., 2.], device=")
    assert (x.tolist(), x.sum().item(), x.numpy().tolist()) == ([1.0, 2.0], 3.0, [1.0, 2.0])


def test_two_passes_add_up_on_the_gpu():
    x = tg.asarray(cupy.asarray([1.0, 2.0])).requires_grad_()
    for _ in range(2):
        (x * x).sum().backward()
    assert isinstance(x.grad.array, cupy.ndarray)
    assert x.grad.tolist() == [4.0, 8.0]
