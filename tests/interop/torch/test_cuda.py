"""CUDA tensors over calls and passes: the device they arrive on, and where gradients return to."""

import threading

import pytest
import torch
from tests.distributed.simulated import IN_ORDER, on_workers
from tests.interop.torch import handlers as handlers
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.distributed.optim import DistributedOptimizer
from telegrad.errors import DeviceError, SavedValueChanged
from telegrad.rpc.options import Options

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CUDA = "cuda:0"
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool]


def x(device=CUDA):
    return torch.tensor([5.0, 7.0], dtype=torch.float64, device=device, requires_grad=True)


def there_and_back(value):
    return rpc.rpc_sync("b", handlers.same, (value,))


def scale_on_cuda(value):
    """By this worker's parameter, which is on the CPU: its gradient returns there."""
    return value * handlers.parameter().to(CUDA)


def device_of(value):
    return str(value.device)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tensor_arrives_on_the_device_of_the_same_name(dtype):
    @on_workers("main", "b")
    def program():
        for value in (
            torch.arange(6, device=CUDA).reshape(2, 3).to(dtype),
            torch.zeros((), device=CUDA).to(dtype),
            torch.zeros((0, 3), device=CUDA).to(dtype),
            torch.arange(12, device=CUDA).reshape(3, 4).to(dtype).T[::2],
        ):
            found = there_and_back(value)
            assert device_of(found) == CUDA
            assert found.dtype is dtype
            assert torch.equal(found, value)

    program()


@on_workers("main", "b")
def test_sparse_tensors_parameters_and_modules_arrive_as_they_are():
    sparse = torch.eye(3, device=CUDA).to_sparse()
    found = there_and_back(sparse)
    assert found.is_sparse
    assert device_of(found) == CUDA
    assert torch.equal(found.to_dense(), sparse.to_dense())
    parameter = torch.nn.Parameter(torch.ones(2, device=CUDA))
    assert type(there_and_back(parameter)) is torch.nn.Parameter
    model = there_and_back(handlers.Model().to(CUDA))
    data = torch.ones(2, 3, dtype=torch.float64, device=CUDA)
    assert torch.equal(model(data), handlers.Model().to(CUDA)(data))


@on_workers("main", "b")
def test_gradients_return_to_the_device_of_their_tensor():
    one, other = x(), x("cpu")
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", scale_on_cuda, (one * other.to(CUDA),))
        assert device_of(y) == CUDA
        autograd.backward(context_id, [y.cpu().sum()])
        found = autograd.get_gradients(context_id)
        assert device_of(found[one]) == CUDA
        assert device_of(found[other]) == "cpu"
        assert found[one].tolist() == [10, 21]
        assert found[other].tolist() == [10, 21]
        # The parameter of the other worker is on the CPU.
        assert rpc.rpc_sync("b", handlers.gradients, (context_id,)) == {"w": [25, 49]}


@on_workers("main", "b")
def test_where_regions_meet_on_a_device_sums_hooks_and_retained_gradients_are_whole():
    one = x()
    seen = []
    one.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.tolist()))
    with autograd.context() as context_id:
        middle = one * 1
        middle.retain_grad()
        middle.register_hook(lambda g: g.clamp(max=15))
        parts = [rpc.rpc_sync("b", scale_on_cuda, (middle,)) for _ in range(2)]
        autograd.backward(context_id, [(parts[0] + parts[1] + middle * 10).sum()])
        # 2 + 2 + 10 and 3 + 3 + 10, the second clamped.
        assert autograd.get_gradients(context_id)[one].tolist() == [14, 15]
        assert middle.grad.tolist() == [14, 15]
        assert seen == [[14, 15]]


@on_workers("main", "b")
def test_a_tensor_inside_of_a_graph_on_a_device_may_be_an_input():
    one = x()
    with autograd.context() as context_id:
        middle = one * 2
        loss = (rpc.rpc_sync("b", scale_on_cuda, (middle,)) + middle).sum()
        found = autograd.grad(context_id, [loss], [middle, one])
        assert [g.tolist() for g in found] == [[3, 4], [6, 8]]
        assert all(device_of(g) == CUDA for g in found)


@on_workers("main", "b")
def test_second_derivatives_go_back_over_the_same_devices():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", lambda v: v * v * v, (one,))
        (first,) = autograd.grad(context_id, [y.sum()], [one], create_graph=True)
        assert first.tolist() == [75, 147]
        (second,) = autograd.grad(context_id, [first.sum()], [one])
        assert second.tolist() == [30, 42]
        assert device_of(second) == CUDA


@on_workers("main", "b")
def test_tangents_travel_with_their_tensors():
    with forward_ad.dual_level():
        one = forward_ad.make_dual(x().detach(), torch.ones(2, dtype=torch.float64, device=CUDA))
        found = forward_ad.unpack_dual(rpc.rpc_sync("b", scale_on_cuda, (one,)))
        assert found.primal.tolist() == [10, 21]
        assert found.tangent.tolist() == [2, 3]
        assert device_of(found.tangent) == CUDA


@on_workers("main", "b")
def test_work_on_a_side_stream_is_complete_when_it_leaves():
    size = 2048
    one = torch.full((size, size), 1.0 / size, device=CUDA, requires_grad=True)
    expected = one.detach()
    for _ in range(8):
        expected = expected @ one.detach()
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with autograd.context() as context_id, torch.cuda.stream(stream):
        value = one
        for _ in range(8):
            value = value @ one
        y = there_and_back(value)
        assert torch.allclose(y, expected, rtol=1e-4)
        autograd.backward(context_id, [y.sum()])
        gradient = autograd.get_gradients(context_id)[one]
        (plain,) = torch.autograd.grad(value_of_chain(one).sum(), one)
        assert torch.allclose(gradient, plain, rtol=1e-4)


def value_of_chain(one):
    value = one
    for _ in range(8):
        value = value @ one
    return value


@on_workers("main", "b")
def test_hooks_of_a_device_s_tensors_run_on_the_thread_of_a_pass_and_may_make_calls():
    one, seen = x(), []

    def hook(gradient):
        # Python knows nothing of the threads of PyTorch's engine.
        is_alien = isinstance(threading.current_thread(), threading._DummyThread)
        seen.append((is_alien, device_of(gradient)))
        # A call that is made for this pass.
        seen.append(there_and_back(gradient).tolist())

    h = one * 2
    h.register_hook(hook)
    with autograd.context() as context_id:
        autograd.backward(context_id, [there_and_back(h).sum()])
        assert autograd.get_gradients(context_id)[one].tolist() == [2, 2]
    assert seen == [(False, CUDA), [1, 1]]


def with_a_call_inside(value):
    return rpc.rpc_sync("b", scale_on_cuda, (value.exp(),)).sin()


def checkpointed(value):
    return checkpoint(with_a_call_inside, value, use_reentrant=False)


@pytest.mark.parametrize("where", ["main", "b", "c"])
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_checkpoint_of_a_device_s_tensors_may_make_calls_wherever_it_is(where, create_graph):
    @on_workers("main", "b", "c")
    def test():
        found = []
        for block in (with_a_call_inside, checkpointed):
            one = x()
            with autograd.context() as context_id:
                loss = rpc.rpc_sync(where, block, (one.sqrt(),)).sum()
                options = {"retain_graph": True, "create_graph": create_graph}
                autograd.backward(context_id, [loss], **options)
                mine = autograd.get_gradients(context_id)[one]
                there = rpc.rpc_sync("b", handlers.gradients, (context_id,))
                found.append([mine.tolist(), device_of(mine), there])
        assert found[0] == found[1]

    test()


TO_CPU = Options(device_maps={"b": {CUDA: "cpu"}})


@on_workers("main", "b", options=TO_CPU)
def test_a_device_map_says_where_tensors_arrive_and_gradients_return_all_the_same():
    one = x()
    assert rpc.rpc_sync("b", device_of, (one,)) == "cpu"
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,))
        assert device_of(y) == "cpu"
        autograd.backward(context_id, [y.sum()])
        gradient = autograd.get_gradients(context_id)[one]
        assert device_of(gradient) == CUDA
        assert gradient.tolist() == [2, 3]
    parameter = torch.nn.Parameter(torch.ones(2, device=CUDA))
    found = there_and_back(parameter)
    assert type(found) is torch.nn.Parameter
    assert device_of(found) == "cpu"


MISSING = f"cuda:{torch.cuda.device_count()}"


@on_workers("main", "b", options=Options(device_maps={"b": {CUDA: MISSING}}))
def test_a_device_that_the_other_side_lacks_is_refused_before_anything_is_recorded():
    with autograd.context() as context_id:
        with pytest.raises(DeviceError, match=f"worker 'b' has .*, got '{MISSING}'"):
            there_and_back(x())
        assert autograd._retrieve_context(context_id)._send_functions() == {}


@on_workers("main", "b", faults=IN_ORDER)
def test_an_optimiser_steps_a_parameter_on_the_device():
    reference = rpc.remote("b", cuda_parameter)
    optimizer = DistributedOptimizer(torch.optim.SGD, [reference], lr=0.1)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", scale_by, (reference, x()))
        autograd.backward(context_id, [y.sum()])
        optimizer.step(context_id)
        value = reference.to_here()
        assert value.tolist() == [0.5, pytest.approx(0.3)]
        assert device_of(value) == CUDA
        with pytest.raises(SavedValueChanged):
            late = rpc.rpc_sync("b", scale_by, (reference, x()))
            optimizer.step(context_id)
            autograd.backward(context_id, [late.sum()])


def cuda_parameter():
    return torch.ones(2, dtype=torch.float64, device=CUDA, requires_grad=True)


def scale_by(reference, value):
    return value * reference.local_value()


class OnCuda(torch.nn.Module):
    """The model of the tests, on the device."""

    def __init__(self):
        super().__init__()
        self.model = handlers.Model(1).to(CUDA)

    def forward(self, value):
        return self.model(value)


@pytest.mark.processes
def test_two_processes_train_on_a_device_as_one_would():
    from telegrad.distributed.remote_module import RemoteModule

    data = torch.linspace(-1, 1, 24, dtype=torch.float64, device=CUDA).reshape(8, 3)

    def losses_of(model, step):
        found = []
        for _ in range(5):
            found.append(step(model))
        return found

    plain = OnCuda()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)

    def step_here(model):
        optimizer.zero_grad()
        loss = (model(data) - 1).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    expected = losses_of(plain, step_here)
    with LocalCluster(["b"]):
        remote = RemoteModule("b", OnCuda)
        distributed = DistributedOptimizer(torch.optim.SGD, remote.parameters(), lr=0.1)

        def step_there(model):
            with autograd.context() as context_id:
                loss = (model(data) - 1).square().mean()
                autograd.backward(context_id, [loss])
                distributed.step(context_id)
                return loss.item()

        assert losses_of(remote, step_there) == pytest.approx(expected, rel=1e-9)
