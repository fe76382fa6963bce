"""telegrad's own tensors on a device, over calls, passes and optimisers.

Most tests run three times: with PyTorch there, through the segments of the device and in pieces;
and without it, through the host's memory.
"""

import random
from contextlib import nullcontext

import numpy as np
import pytest
from tests.devices import CUDA, cupy, on_a_gpu
from tests.distributed import device_handlers as there

import telegrad as tg
from telegrad import nn, optim
from telegrad.autograd import forward_ad
from telegrad.distributed import LocalCluster, RemoteModule, autograd, rpc
from telegrad.distributed.contexts import tensor_kind
from telegrad.distributed.optim import DistributedOptimizer
from telegrad.distributed.rpc import Options
from telegrad.errors import DeviceError

pytestmark = [*on_a_gpu, pytest.mark.processes]

WAYS = {
    "segments": Options(),
    "staged": Options(device_segments=0),
    "without PyTorch": Options(),
}
DTYPES = ["float64", "float32", "int64", "int8", "uint16", "uint64", "bool", "complex64"]


@pytest.fixture(scope="module", params=WAYS)
def cluster(request):
    """Two workers; they know the way by their options, and by what can be imported there."""
    without = request.param == "without PyTorch"
    with pytest.MonkeyPatch.context() as patch:
        if without:
            there.forget_torch(patch)
        begin = there.forget_torch if without else None
        with LocalCluster(["b", "c"], options=WAYS[request.param], initializer=begin):
            yield request.param


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_shape_and_size_arrives_as_it_left(cluster, name):
    generator = np.random.default_rng(0)
    for shape in [(), (0, 3), (2, 3), (300, 1000), (3, 1 << 19)]:
        numbers = (generator.random(shape) * 9).astype(name)
        value = tg.asarray(numbers, device="cuda")
        for each in (value, value.mT if value.ndim > 1 else value, tg.flip(value)):
            found = rpc.rpc_sync("b", there.same, (each,))
            assert found.device == CUDA
            assert isinstance(found.array, cupy.ndarray)
            assert found.dtype == each.dtype
            np.testing.assert_array_equal(found.numpy(), each.numpy())


def test_leaves_parameters_and_modules_arrive_as_they_are_and_on_the_device(cluster):
    leaf = tg.tensor([1.0, 2.0], device="cuda", requires_grad=True)
    facts = CUDA, "float32"
    asked = [
        (leaf, ("Tensor", *facts, True, [1.0, 2.0])),
        (leaf.detach(), ("Tensor", *facts, False, [1.0, 2.0])),
        (nn.Parameter(leaf), ("Parameter", *facts, True, [1.0, 2.0])),
        (nn.Parameter(leaf, requires_grad=False), ("Parameter", *facts, False, [1.0, 2.0])),
    ]
    for value, expected in asked:
        assert rpc.rpc_sync("b", there.described, (value,)) == expected
    model = nn.Linear(3, 2).cuda()
    found = rpc.rpc_sync("b", there.same, (model,))
    assert all(p.device == CUDA and isinstance(p, nn.Parameter) for p in found.parameters())
    assert found(tg.ones(1, 3, device="cuda")).tolist() == model(tg.ones(1, 3).cuda()).tolist()
    nested = rpc.rpc_sync("b", there.same, ({"x": [leaf.detach(), 3], "y": leaf.detach().cpu()},))
    assert nested["x"][0].device == CUDA
    assert nested["y"].device == "cpu"


def test_what_is_overwritten_after_the_call_arrives_with_its_old_values(cluster):
    array = cupy.zeros(1 << 20)
    futures = []
    for number in range(10):
        value = tg.asarray(array)
        value.array.fill(number)
        futures.append(rpc.rpc_async("b", there.same, (value,)))
        value.array.fill(-1)
    for number, future in enumerate(futures):
        found = future.wait()
        assert (found.min().item(), found.max().item()) == (number, number)


def test_gradients_return_to_the_device_of_their_tensor(cluster):
    one = tg.tensor([5.0, 7.0], dtype=tg.float64, device="cuda", requires_grad=True)
    other = tg.tensor([2.0, 3.0], dtype=tg.float64, requires_grad=True)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", there.scale, (one * 2, other))
        assert y.device == CUDA
        autograd.backward(context_id, [y.cpu().sum()])
        found = autograd.get_gradients(context_id)
        assert found[one].device == CUDA
        assert found[other].device == "cpu"
        assert found[one].tolist() == [4, 6]
        assert found[other].tolist() == [10, 14]


def test_second_derivatives_go_back_over_the_same_devices(cluster):
    one = tg.tensor([5.0, 7.0], dtype=tg.float64, device="cuda", requires_grad=True)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", there.through, ("c", one))
        (first,) = autograd.grad(context_id, [y.sum()], [one], create_graph=True)
        assert first.tolist() == [150, 294]
        (second,) = autograd.grad(context_id, [first.sum()], [one])
        assert second.tolist() == [60, 84]
        assert second.device == first.device == CUDA


@pytest.mark.usefixtures("cluster")
def test_gradients_that_a_pass_is_given_are_where_their_root_is():
    one = tg.tensor([5.0, 7.0], dtype=tg.float64, device="cuda", requires_grad=True)
    given = tg.tensor([1.0, 10.0], dtype=tg.float64)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", there.cube, (one,))
        with pytest.raises(
            DeviceError, match=r"device cuda:0 .* for the gradient grad_outputs\[0\], got cpu"
        ):
            autograd.grad(context_id, [y], [one], [given])
        (found,) = autograd.grad(context_id, [y], [one], [given.cuda()])
        assert found.device == CUDA
        assert found.tolist() == [75, 1470]


@pytest.mark.parametrize("size", [2, 1 << 18])
@pytest.mark.parametrize("in_context", [False, True])
def test_tangents_travel_with_their_tensors(cluster, size, in_context, monkeypatch):
    if cluster != "without PyTorch":
        # By which what this process sends goes to the host's memory.
        monkeypatch.setattr(tensor_kind, "staged", None)
    x = (tg.arange(size, device="cuda") % 5).double().requires_grad_(in_context)
    by = tg.ones(size, dtype=tg.float64) * 3
    with autograd.context() if in_context else nullcontext(), forward_ad.dual_level():
        one = forward_ad.make_dual(x, tg.ones_like(x.detach()))
        found, beside = rpc.rpc_sync("b", there.same, ([one, by],))
        assert beside.device == "cpu"
        further = rpc.rpc_sync("b", there.through, ("c", one))
        for mine, plain in ((found, one), (further, one * one * one * 2)):
            for part, expected in zip(forward_ad.unpack_dual(mine), forward_ad.unpack_dual(plain)):
                assert part.device == CUDA
                assert part.requires_grad == expected.requires_grad
                np.testing.assert_array_equal(part.detach().numpy(), expected.detach().numpy())


def test_tangents_of_gradients_are_on_the_device_of_their_tensor(cluster):
    x = tg.tensor([5.0, 7.0], dtype=tg.float64, device="cuda", requires_grad=True)
    with autograd.context() as context_id, forward_ad.dual_level():
        one = forward_ad.make_dual(x, tg.ones_like(x.detach()))
        y = rpc.rpc_sync("b", there.cube, (one,))
        (gradient,) = autograd.grad(context_id, [y.sum()], [x])
        primal, tangent = forward_ad.unpack_dual(gradient)
        assert primal.device == tangent.device == CUDA
        assert primal.tolist() == [75, 147]
        assert tangent.tolist() == [30, 42]


def test_two_processes_train_on_a_device_as_one_would(cluster):
    x = tg.linspace(-1, 1, 24, device="cuda").reshape(8, 3)
    tg.manual_seed(0)
    first, second = nn.Linear(3, 4), nn.Linear(4, 2)
    remote = RemoteModule("b/cuda:0", nn.Linear, (3, 4)), RemoteModule("c/cuda", nn.Linear, (4, 2))
    for far, near in zip(remote, (first, second)):
        far.load_state_dict(near.cuda().state_dict())
    parameters = [*first.parameters(), *second.parameters()]
    local = optim.Adam(parameters, lr=0.05)
    far_parameters = [p for each in remote for p in each.parameters()]
    distributed = DistributedOptimizer(optim.Adam, far_parameters, lr=0.05)
    for _ in range(5):
        loss = ((second(first(x)) - 1) ** 2).mean()
        local.zero_grad()
        loss.backward()
        local.step()
        with autograd.context() as context_id:
            again = ((remote[1](remote[0](x)) - 1) ** 2).mean()
            autograd.backward(context_id, [again])
            distributed.step(context_id)
        assert again.item() == pytest.approx(loss.item(), rel=1e-6)
    state = remote[0].state_dict()["weight"]
    assert state.device == CUDA
    np.testing.assert_allclose(state.numpy(), first.weight.detach().numpy(), rtol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_random_programs_over_device_and_host_have_exact_gradients(cluster, seed):
    for number in range(5):
        _compare(random.Random(100 * seed + number))


def _compare(chance):
    steps = []
    # So few, and of small integers, that every sum is exact in whatever order it is made.
    for _ in range(chance.randint(3, 5)):
        where = chance.choice(["here", "b", "c", "there"])
        steps.append((where, chance.choice(there.OPERATIONS), chance.random(), chance.random()))
    size = chance.choice([3, 700, 1 << 18])
    leaves = [
        (tg.arange(size) % 3).double().to(device).requires_grad_() for device in (CUDA, "cpu", CUDA)
    ]
    expected = tg.autograd.grad(_run(steps, leaves, False), leaves, allow_unused=True)
    with autograd.context() as context_id:
        autograd.backward(context_id, [_run(steps, leaves, True)])
        found = autograd.get_gradients(context_id)
        for leaf, gradient in zip(leaves, expected):
            assert (leaf in found) == (gradient is not None)
            if gradient is not None:
                assert found[leaf].device == leaf.device
                np.testing.assert_array_equal(found[leaf].numpy(), gradient.numpy())


def _run(steps, leaves, is_distributed):
    values = list(leaves)
    for where, name, first, second in steps:
        x, y = values[int(first * len(values))], values[int(second * len(values))]
        if where == "there":
            values.append(x.to(CUDA if x.device == "cpu" else "cpu"))
        elif where == "here" or not is_distributed:
            values.append(there.apply(name, x, y))
        else:
            values.append(rpc.rpc_sync(where, there.apply, (name, x, y)))
    return values[-1].sum().cpu()


def test_it_went_the_way_that_it_should_have(cluster):
    rpc.rpc_sync("b", there.same, (tg.ones(1 << 20, device="cuda"),))
    held = there.bytes_of_segments()
    assert (held is None) == (cluster == "without PyTorch")
    assert bool(held) == (cluster == "segments")
