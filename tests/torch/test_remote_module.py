"""The stand-in for torch.distributed.nn.RemoteModule, beside the same module in this process.

PyTorch's own tests of it run in ``pytorch_own``; here is what they don't look at: gradients, steps,
modules inside of others, and what is said of mistakes.
"""

import pickle

import pytest
import torch
from torch import nn

import telegrad.torch.autograd as dist_autograd
import telegrad.torch.rpc as rpc
from telegrad.errors import NotInitialized, UnknownWorker
from telegrad.torch.nn import RemoteModule
from telegrad.torch.optim import DistributedOptimizer


class Gate(nn.Module):
    def __init__(self, width, scale=1.0):
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, x, *, twice=False):
        y = self.inner(x).tanh() * self.scale
        return (y, x) if twice else y


class Hybrid(nn.Module):
    def __init__(self):
        super().__init__()
        self.there = RemoteModule("alone/cpu", Gate, args=(3,), kwargs={"scale": 2.0})
        self.here = nn.Linear(3, 1)

    def forward(self, x):
        return self.here(self.there(x))


def call_it(remote_module, x):
    return remote_module(x) + remote_module.forward_async(x).wait()


@pytest.mark.parametrize("place", ["alone", "alone/cpu", "rank:0/cpu"])
def test_it_gives_what_the_module_gives(alone, place):
    remote = RemoteModule(place, Gate, (3,), {"scale": 2.0})
    module = remote.get_module_rref().local_value()
    x = torch.randn(4, 3)
    assert isinstance(remote, nn.Module)
    assert torch.equal(remote(x), module(x))
    assert torch.equal(remote.forward_async(x).wait(), module(x))
    y, same = remote(x, twice=True)
    assert torch.equal(y, module(x))
    assert torch.equal(same, x)
    assert (remote.device, remote.is_device_map_set, remote.is_scriptable) == ("cpu", False, False)


def test_gradients_and_a_step_are_those_of_the_same_model_here(alone):
    torch.manual_seed(0)
    hybrid = Hybrid()
    module = hybrid.there.get_module_rref().local_value()
    twin = nn.Sequential(Gate(3), nn.Linear(3, 1))
    twin[0].load_state_dict(module.state_dict())
    twin[1].load_state_dict(hybrid.here.state_dict())
    x = torch.randn(4, 3)
    mine = [rpc.RRef(parameter) for parameter in hybrid.here.parameters()]
    theirs = hybrid.there.remote_parameters()
    optimizer = DistributedOptimizer(torch.optim.SGD, [*theirs, *mine], lr=0.1)
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, [hybrid(x).square().mean()])
        found = dist_autograd.get_gradients(context_id)
        twin(x).square().mean().backward()
        for ours, wanted in zip(
            (*module.parameters(), *hybrid.here.parameters()), twin.parameters(), strict=True
        ):
            torch.testing.assert_close(found[ours], wanted.grad)
        optimizer.step(context_id)
    torch.optim.SGD(twin.parameters(), lr=0.1).step()
    torch.testing.assert_close(hybrid(x), twin(x))


def test_parameters_of_the_module_alone_can_be_had(alone):
    remote = RemoteModule("alone", Gate, (3,))
    assert len(remote.remote_parameters()) == 3
    assert [rref.to_here().ndim for rref in remote.remote_parameters(recurse=False)] == [0]


def test_train_heeds_its_mode_and_gives_the_remote_module(alone):
    remote = RemoteModule("alone", nn.Dropout, (0.5,))
    module = remote.get_module_rref().local_value()
    assert remote.train(False) is remote
    assert not module.training
    assert remote.train() is remote
    assert module.training
    assert remote.eval() is remote
    assert not module.training


def test_it_is_sent_in_calls_and_not_in_a_pickle(alone):
    remote = RemoteModule("alone", Gate, (3,))
    x = torch.randn(2, 3)
    assert torch.equal(rpc.rpc_sync("alone", call_it, (remote, x)), 2 * remote(x))
    with pytest.raises(RuntimeError, match="can only be pickled when using RPC"):
        pickle.dumps(remote)


@pytest.mark.parametrize(
    ("place", "kind", "said"),
    [
        ("alone/nowhere", RuntimeError, "device type at start of device string: nowhere"),
        ("cpu", ValueError, "expected a worker and its device, like 'trainer0/cpu', got 'cpu'"),
        ("alone/cpu/3", ValueError, "Could not parse remote_device"),
        ("nobody/cpu", UnknownWorker, "the workers are 'alone'"),
    ],
)
def test_a_place_that_is_none_is_refused_at_once(alone, place, kind, said):
    with pytest.raises(kind, match=said):
        RemoteModule(place, nn.Linear, (3, 1))


def test_what_is_no_module_is_refused_at_the_first_use(alone):
    with pytest.raises(ValueError, match=r"returns an instance of <class nn\.Module>"):
        RemoteModule("alone", dict).forward()


def test_torchscript_is_refused(alone):
    with pytest.raises(ValueError, match="leave out _module_interface_cls"):
        RemoteModule("alone", nn.Linear, (3, 1), _module_interface_cls=object)


def test_it_is_shown_with_its_place(alone):
    assert repr(RemoteModule("alone", nn.Identity)).startswith("RemoteModule('alone', 'cpu', ")


def test_before_init_rpc_it_says_what_to_call():
    with pytest.raises(NotInitialized, match=r"RemoteModule only works in RPC\. Call init_rpc"):
        RemoteModule("alone", nn.Linear, (3, 1))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_device_it_takes_tensors_there_and_gives_them_back(alone):
    remote = RemoteModule("alone/cuda:0", Gate, (3,))
    module = remote.get_module_rref().local_value()
    assert {parameter.device.type for parameter in module.parameters()} == {"cuda"}
    x = torch.randn(4, 3, requires_grad=True)
    with dist_autograd.context() as context_id:
        y, same = remote(x, twice=True)
        assert (y.device.type, same.device.type) == ("cpu", "cpu")
        dist_autograd.backward(context_id, [(remote(x) * y).sum()])
        found = dist_autograd.get_gradients(context_id)
    here = Gate(3)
    here.load_state_dict(module.state_dict())
    (here(x).square()).sum().backward()
    torch.testing.assert_close(found[x], x.grad)
    for ours, wanted in zip(module.parameters(), here.parameters(), strict=True):
        torch.testing.assert_close(found[ours].cpu(), wanted.grad)
