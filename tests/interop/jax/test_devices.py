"""Arrays between telegrad and JAX by DLPack: shared, not copied; on the host, and on a CUDA device.

Run those of a device with ``pytest -m gpu``, with CuPy and a JAX that has CUDA.
"""

import array_api_strict
import jax
import numpy as np
import pytest
from jax import numpy as jnp

import telegrad as tg
from telegrad.interop.jax.arrays import from_jax_array, maker_for, to_jax_value
from telegrad.jax import from_jax
from telegrad.tensors import wrap
from telegrad.testing import gradient_check


def aligned(count):
    """Return zeros where JAX shares memory: at a multiple of 64 bytes."""
    spare = np.zeros(count + 8)
    start = (-spare.ctypes.data % 64) // 8
    return spare[start : start + count]


def test_a_result_shares_the_memory_of_jax():
    result = jnp.arange(1000.0)
    assert from_jax_array(result).array.ctypes.data == result.unsafe_buffer_pointer()


def test_an_argument_of_another_library_shares_its_memory_with_jax():
    array = aligned(1000)
    x = wrap(array_api_strict.asarray(array, copy=False))
    assert to_jax_value(x).unsafe_buffer_pointer() == array.ctypes.data


@pytest.mark.parametrize("turn", [np.transpose, np.flipud, lambda a: a[:, ::2]])
def test_any_layout_of_memory_goes(turn):
    array = turn(np.arange(6.0).reshape(2, 3))
    x = tg.asarray(array_api_strict.asarray(array))
    assert np.array_equal(np.from_dlpack(from_jax(lambda x: 2 * x)(x).array), 2 * array)


cupy = None
if any(device.platform == "gpu" for device in jax.devices()):
    cupy = pytest.importorskip("cupy", reason="needs CuPy, which serves arrays of a CUDA device")
on_device = pytest.mark.skipif(cupy is None, reason="needs a JAX that has a CUDA device")


@pytest.fixture
def x():
    return tg.asarray(cupy.asarray([[0.1, 0.2], [0.3, 0.4]])).requires_grad_()


@from_jax
def swirl(x):
    return jnp.sin(x) * x.T


@pytest.mark.gpu
@on_device
def test_an_argument_and_a_result_stay_on_the_device_and_share_their_memory(x):
    given = to_jax_value(x.detach())
    assert given.unsafe_buffer_pointer() == x.array.data.ptr
    assert {device.platform for device in given.devices()} == {"gpu"}
    result = jax.jit(jnp.sin)(given)
    made = from_jax_array(result, maker_for([x]))
    assert isinstance(made.array, cupy.ndarray)
    assert made.array.data.ptr == result.unsafe_buffer_pointer()


@pytest.mark.gpu
@on_device
def test_gradients_of_first_and_second_order_stay_on_the_device(x):
    (slope,) = tg.autograd.grad(swirl(x).sum(), x, create_graph=True)
    (curvature,) = tg.autograd.grad((slope**2).sum(), x)

    def first(a):
        return jax.grad(lambda a: swirl.__wrapped__(a).sum())(a)

    host = cupy.asnumpy(x.array)
    assert isinstance(slope.array, cupy.ndarray)
    assert isinstance(curvature.array, cupy.ndarray)
    np.testing.assert_allclose(cupy.asnumpy(slope.detach().array), first(host), rtol=1e-12)
    expected = jax.grad(lambda a: (first(a) ** 2).sum())(host)
    np.testing.assert_allclose(cupy.asnumpy(curvature.array), expected, rtol=1e-12)


@pytest.mark.gpu
@on_device
def test_forward_mode_stays_on_the_device(x):
    tangent = tg.asarray(cupy.ones((2, 2)))
    _, pushed = tg.autograd.functional.jvp(swirl, (x.detach(),), (tangent,))
    assert isinstance(pushed.array, cupy.ndarray)
    host = cupy.asnumpy(x.array)
    expected = jax.jvp(swirl.__wrapped__, (host,), (np.ones((2, 2)),))[1]
    np.testing.assert_allclose(cupy.asnumpy(pushed.array), expected, rtol=1e-12)


@pytest.mark.gpu
@on_device
def test_what_was_computed_before_is_seen_on_the_device(x):
    """Both libraries have streams of their own; what one has begun the other waits for."""
    large = tg.asarray(cupy.full((2000, 2000), 1e-3))
    product = large @ large @ large
    found = from_jax(lambda a: a @ a)(product)
    expected = cupy.asnumpy(cupy.asarray(product.array) @ cupy.asarray(product.array))
    np.testing.assert_allclose(cupy.asnumpy(found.array), expected, rtol=1e-9)


@pytest.mark.gpu
@on_device
def test_a_tensor_of_pytorch_on_the_device_goes_there_and_back():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a PyTorch that has a CUDA device")
    x = torch.tensor([0.3, 0.7], device="cuda", requires_grad=True)
    y = from_jax(lambda x: jnp.sin(x) * x)(x)
    assert y.is_cuda
    y.sum().backward()
    known = x.detach()
    torch.testing.assert_close(x.grad, torch.cos(known) * known + torch.sin(known))


@pytest.mark.gpu
@on_device
def test_arrays_of_jax_on_the_device_are_constants(x):
    weight = jnp.asarray([[1.0, 2.0], [3.0, 4.0]])
    y = from_jax(lambda x, w: (x * w).sum())(x, weight)
    y.backward()
    np.testing.assert_allclose(cupy.asnumpy(x.grad.array), np.asarray(weight))


@pytest.mark.gpu
@on_device
def test_derivatives_of_numpy_arrays_agree_with_differences_where_jax_computes_on_the_device():
    gradient_check(swirl, [np.array([[0.1, 0.2], [0.3, 0.4]])], order=2)
