"""Residents: values by name, remade when their worker comes back, and never within a context."""

import os
import signal

import pytest

import telegrad as tg
import telegrad.distributed.autograd as dist_autograd
from telegrad import nn, optim
from telegrad.distributed import LocalCluster, RemoteModule, rpc
from telegrad.distributed.optim import DistributedOptimizer
from telegrad.errors import UsageError, WorkerLost

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(["a", "b"], restart=True) as cluster:
        yield cluster


def kill(cluster, name):
    before = rpc.get_worker_info(name).incarnation
    os.kill(cluster.process(name).pid, signal.SIGKILL)
    cluster.wait_for(name, after=before)


def append(resident, value):
    resident.rpc_sync().append(value)
    return resident.to_here()


def test_all_who_keep_a_name_on_a_worker_have_one_value(cluster):
    mine = rpc.keep("a", "list", list)
    assert append(mine, 1) == [1]
    assert rpc.rpc_sync("b", append, (mine, 2)) == [1, 2], "it travels"
    assert append(rpc.keep("a", "list", list), 3) == [1, 2, 3]
    assert rpc.keep("b", "list", list).to_here() == []
    assert repr(mine) == "Resident('list' on 'a')"
    assert mine.rpc_async().count(1).wait() == 1


def test_a_resident_is_made_anew_when_its_worker_comes_back(cluster):
    kept = rpc.keep("a", "anew", list, ((7,),))
    old = kept.rref()
    assert append(kept, 1) == [7, 1]
    kill(cluster, "a")
    assert kept.to_here() == [7]
    with pytest.raises(WorkerLost):
        old.to_here()


def test_within_a_context_it_is_of_one_life(cluster):
    kept = rpc.keep("a", "layer", nn.Linear, (2, 1))
    x = tg.ones((1, 2))
    with dist_autograd.context():
        kept.rpc_sync().forward(x)
        kill(cluster, "a")
        with pytest.raises(WorkerLost, match=r"'layer' is that of another life.*begin a new one"):
            kept.rref()
    with dist_autograd.context() as context_id:
        loss = kept.rpc_sync().forward(x).sum()
        dist_autograd.backward(context_id, [loss])


def test_the_state_of_a_resident_is_read_and_set(cluster):
    kept = rpc.keep("b", "module", nn.Linear, (2, 1))
    state = kept.state_dict()
    state["bias"] = state["bias"] + 3.0
    kept.load_state_dict(state)
    assert kept.state_dict()["bias"].tolist() == state["bias"].tolist()


def test_what_cant_be_kept_is_refused(cluster):
    with pytest.raises(UsageError, match="the names of a worker and of a value, got 1 and 'x'"):
        rpc.keep(1, "x", list)
    with pytest.raises(UsageError, match="a function or class that makes 'x', got a int"):
        rpc.keep("a", "x", 3)


def linear(seed, *sizes):
    tg.manual_seed(seed)
    return nn.Linear(*sizes)


def test_a_module_and_its_optimiser_on_residents_find_them_anew_in_the_next_context(cluster):
    body = RemoteModule.of(rpc.keep("a", "body", linear, (1, 2, 3)))
    head = RemoteModule.of(rpc.keep("b", "head", linear, (2, 3, 1)))
    optimizer = DistributedOptimizer(optim.Adam, [body, head], lr=0.1)
    first = body.state_dict()
    x = tg.ones((4, 2))

    def step():
        with dist_autograd.context() as context_id:
            loss = head(body(x)).square().sum()
            dist_autograd.backward(context_id, [loss])
            optimizer.step(context_id)
            return loss.item()

    begun = step()
    assert step() < begun
    kept = head.state_dict()["weight"].tolist()
    kill(cluster, "a")
    assert body.state_dict()["weight"].tolist() == first["weight"].tolist(), "made anew"
    assert head.state_dict()["weight"].tolist() == kept, "the other one stays"
    before = step()
    assert step() < before
    steps = {
        owner: [each["step"] for each in state["state"].values()]
        for owner, state in optimizer.state_dict()["owners"].items()
    }
    assert steps == {"a": [2, 2], "b": [4, 4]}, "that of the one that came back is new"
    assert repr(body) == "RemoteModule(on='a', Resident('body' on 'a'))"


def test_a_module_on_a_resident_is_of_one_life_within_a_context(cluster):
    body = RemoteModule.of(rpc.keep("a", "within", linear, (1, 2, 3)))
    optimizer = DistributedOptimizer(optim.SGD, [body], lr=0.1)
    with dist_autograd.context() as context_id:
        body(tg.ones((1, 2)))
        kill(cluster, "a")
        with pytest.raises(WorkerLost, match="another life"):
            body(tg.ones((1, 2)))
        with pytest.raises(WorkerLost, match="another life"):
            optimizer.step(context_id)


def test_a_module_is_of_a_resident_and_nothing_else(cluster):
    with pytest.raises(UsageError, match=r"expected a resident, as rpc\.keep gives it, got a str"):
        RemoteModule.of("body")
