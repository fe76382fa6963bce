"""RemoteModule: made there, called from here, trained through its references."""

import numpy as np
import pytest
from tests.distributed import training
from tests.rpc.neighbours import eventually

import telegrad as tg
from telegrad import nn, optim
from telegrad.distributed import LocalCluster, RemoteModule, autograd, rpc
from telegrad.distributed.optim import DistributedOptimizer
from telegrad.errors import DeviceError, UnknownWorker, UsageError

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(["b"]) as cluster:
        yield cluster


@pytest.fixture
def linear(cluster):
    return RemoteModule("b", nn.Linear, (3, 2))


def copy_of(remote):
    here = nn.Linear(3, 2)
    here.load_state_dict(remote.state_dict())
    return here


def test_it_is_called_like_a_local_module(linear):
    x = tg.tensor(np.arange(6.0, dtype=np.float32).reshape(2, 3))
    expected = copy_of(linear)(x).tolist()
    assert linear(x).tolist() == expected
    assert linear.forward(x).tolist() == expected
    assert linear.forward_async(x).wait().tolist() == expected


def test_arguments_and_options_reach_the_class_and_the_call(cluster):
    remote = RemoteModule("b", training.Doubling, (3,), {"scale": 10.0}).eval()
    assert remote(tg.ones(3), shift=0.5).tolist() == [10.5, 10.5, 10.5]


def test_its_parameters_are_references_on_its_worker(linear):
    parameters = linear.parameters()
    assert [each.owner_name() for each in parameters] == ["b", "b"]
    assert [each.to_here().shape for each in parameters] == [(2, 3), (2,)]
    assert [each.owner_name() for each in linear.remote_parameters()] == ["b", "b"]


def test_it_is_trained_as_in_one_process(linear):
    here = copy_of(linear)
    x = tg.tensor(np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32))
    theirs = DistributedOptimizer(optim.SGD, linear.parameters(), lr=0.1, momentum=0.5)
    mine = optim.SGD(here.parameters(), lr=0.1, momentum=0.5)
    for _ in range(5):
        with autograd.context() as context_id:
            autograd.backward(context_id, [(linear(x) ** 2).mean()])
            theirs.step(context_id)
        mine.zero_grad()
        (here(x) ** 2).mean().backward()
        mine.step()
    state = linear.state_dict()
    for name, value in here.state_dict().items():
        np.testing.assert_allclose(state[name].numpy(), value.numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("weight", r"state_dict\(\)\['weight'\]"),
        ("named_parameters", "state_dict"),
        ("double", "dtype= among the arguments"),
    ],
)
def test_what_a_module_here_has_and_this_one_lacks_says_what_to_write(cluster, name, said):
    remote = RemoteModule("b", training.Doubling, (2,))
    with pytest.raises(AttributeError, match=f"a RemoteModule has no '{name}': .*{said}"):
        getattr(remote, name)
    assert name not in dir(remote)


def test_it_is_switched_between_training_and_evaluation(cluster):
    remote = RemoteModule("b", training.Doubling, (1000,))
    ones = tg.ones(1000)
    assert 0.0 in remote(ones).tolist()
    assert set(remote.eval()(ones).tolist()) == {2.0}
    assert remote.train() is remote
    assert 0.0 in remote(ones).tolist()


def test_a_state_goes_there_and_comes_back(linear):
    state = {"weight": tg.ones((2, 3)), "bias": tg.zeros(2)}
    linear.load_state_dict(state)
    assert linear(tg.ones((1, 3))).tolist() == [[3.0, 3.0]]
    assert linear.state_dict()["weight"].tolist() == [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    with pytest.raises(UsageError, match="weight"):
        linear.load_state_dict({"bias": tg.zeros(2)})


def test_it_may_live_on_the_calling_worker_itself(cluster):
    own = RemoteModule("main", nn.Linear, (2, 1))
    assert own.get_module_rref().is_owner()
    assert own(tg.ones((1, 2))).shape == (1, 1)


def test_it_shows_where_it_is(linear):
    assert "on='b'" in repr(linear)
    assert RemoteModule("b/cpu", nn.Linear, (1, 1)).on == "b"
    assert linear.get_module_rref().owner_name() == "b"


def test_a_module_that_cannot_be_made_gives_its_error_and_the_worker(cluster):
    with pytest.raises(ZeroDivisionError, match="no such module today") as caught:
        RemoteModule("b", training.Unbuildable)
    assert any("raised on worker 'b'" in note for note in caught.value.__notes__)


def test_a_worker_or_device_that_is_not_there_is_refused(cluster):
    with pytest.raises(UnknownWorker, match="'nobody'; the workers are 'b', 'main'"):
        RemoteModule("nobody", nn.Linear, (1, 1))
    with pytest.raises(DeviceError, match=r"or one such as 'cuda:0', got 'mars'") as caught:
        RemoteModule("b/mars", nn.Linear, (1, 1))
    assert any("raised on worker 'b'" in note for note in caught.value.__notes__)


def test_it_is_made_by_the_names_and_defaults_of_pytorch(cluster):
    made = RemoteModule(remote_device="b/cpu", module_cls=nn.Linear, args=(1, 2), kwargs=None)
    assert len(made.remote_parameters()) == 2
    assert RemoteModule("b", nn.ReLU, args=None)(tg.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]


def test_arguments_without_a_tuple_are_refused(cluster):
    with pytest.raises(UsageError, match=r"args as a tuple, got int; .* with a comma: \(x,\)"):
        RemoteModule("b", nn.LayerNorm, 4)


def test_what_makes_no_module_is_refused(cluster):
    with pytest.raises(UsageError, match=r"expected the class of a module.*got a Linear itself"):
        RemoteModule("b", nn.Linear(1, 1))
    with pytest.raises(UsageError, match="as modules have, got one that makes a dict"):
        RemoteModule("b", dict)


def test_wrong_input_gives_the_modules_own_error(linear):
    with pytest.raises(tg.errors.ShapeError):
        linear(tg.ones((1, 7)))


def test_the_module_goes_when_nobody_refers_to_it(cluster):
    remote = RemoteModule("b", nn.Linear, (1, 1))
    rpc.rpc_sync("b", training.watch, (remote.module_rref,))
    assert rpc.rpc_sync("b", training.is_watched_alive)
    del remote
    assert eventually(lambda: not rpc.rpc_sync("b", training.is_watched_alive))
