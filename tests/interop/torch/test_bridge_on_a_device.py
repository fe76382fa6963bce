"""A graph that passes from PyTorch to telegrad and back on a CUDA device, without leaving it."""

import pytest
from tests.devices import CUDA, cupy, on_a_gpu

import telegrad as tg
from telegrad.distributed import autograd, rpc
from telegrad.errors import DTypeError
from telegrad.torch import from_torch, to_torch

torch = pytest.importorskip("torch")

pytestmark = [
    *on_a_gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs PyTorch with CUDA"),
]


def torch_leaf(*values, device=CUDA):
    return torch.tensor(values, dtype=torch.float64, device=device, requires_grad=True)


def own_leaf(*values):
    return tg.asarray(cupy.asarray(values, dtype=cupy.float64)).requires_grad_()


def mixed(a, w):
    """Through both graphs, from PyTorch's to telegrad's and back, twice."""
    first = tg.tanh(from_torch(torch.sin(a)) * w)
    second = from_torch(torch.exp(to_torch(first)) * a)
    return (second * w + first).sum()


def by_torch_alone(a, w):
    first = torch.tanh(torch.sin(a) * w)
    return (torch.exp(first) * a * w + first).sum()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "complex64", "int64", "bool"])
def test_numbers_go_over_and_back_on_their_device(dtype):
    for shape in [(), (0, 3), (2, 3), (4, 5)]:
        value = (torch.rand(shape, device=CUDA) * 9).to(getattr(torch, dtype))
        for each in (value, value.mT if value.ndim > 1 else value):
            went = from_torch(each)
            assert isinstance(went.array, cupy.ndarray)
            assert (went.dtype.name, went.shape) == (dtype, tuple(each.shape))
            back = to_torch(went)
            assert str(back.device) == CUDA
            assert back.tolist() == each.tolist()


def test_what_is_overwritten_afterwards_does_not_change_what_went_over():
    source = torch.ones(3, device=CUDA)
    went = from_torch(source)
    source.fill_(5)
    assert went.tolist() == [1, 1, 1]


@pytest.mark.parametrize("ends", ["telegrad", "torch"])
def test_gradients_of_a_mixed_graph_equal_those_of_torch_alone(ends):
    a, w = torch_leaf(0.5, -1.5), own_leaf(2.0, 0.25)
    loss = mixed(a, w)
    if ends == "torch":
        loss = to_torch(loss) * 1.0
    loss.backward()
    b, v = torch_leaf(0.5, -1.5), torch_leaf(2.0, 0.25)
    by_torch_alone(b, v).backward()
    assert str(a.grad.device) == CUDA
    assert isinstance(w.grad.array, cupy.ndarray)
    torch.testing.assert_close(a.grad, b.grad, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(to_torch(w.grad), v.grad, rtol=1e-12, atol=1e-14)


def test_second_order_of_a_mixed_graph_equals_that_of_torch_alone():
    a, w = torch_leaf(0.5, -1.5), own_leaf(2.0, 0.25)
    (first,) = tg.autograd.grad(mixed(a, w), [w], create_graph=True)
    (first * first).sum().backward()
    b, v = torch_leaf(0.5, -1.5), torch_leaf(2.0, 0.25)
    (theirs,) = torch.autograd.grad(by_torch_alone(b, v), [v], create_graph=True)
    (theirs * theirs).sum().backward()
    torch.testing.assert_close(to_torch(w.grad), v.grad, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(a.grad, b.grad, rtol=1e-12, atol=1e-14)


def test_a_side_stream_of_either_library_is_waited_for():
    large = torch.rand(1 << 24, device=CUDA)
    with torch.cuda.stream(torch.cuda.Stream()):
        went = from_torch(large * 2)
    with cupy.cuda.Stream(non_blocking=True):
        came = to_torch(went.detach() + 1.0)
    torch.cuda.synchronize()
    cupy.cuda.Device(0).synchronize()
    assert torch.equal(came, large * 2 + 1)


def test_a_dtype_that_cupy_lacks_is_refused():
    with pytest.raises(DTypeError, match="dtype that CuPy has, got torch"):
        from_torch(torch.ones(2, dtype=torch.bfloat16, device=CUDA))


def scaled(value):
    return from_torch(torch.sin(value)) * 3.0


@pytest.mark.processes
def test_a_tensor_of_torch_goes_over_at_another_worker():
    from telegrad.distributed import LocalCluster

    with LocalCluster(["b"]), autograd.context() as context_id:
        a = torch_leaf(0.5, -1.5)
        found = rpc.rpc_sync("b", scaled, (a,))
        assert isinstance(found.array, cupy.ndarray)
        autograd.backward(context_id, [found.sum()])
        gradient = autograd.get_gradients(context_id)[a]
        torch.testing.assert_close(gradient, 3.0 * torch.cos(a.detach()))
