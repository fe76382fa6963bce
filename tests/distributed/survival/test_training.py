"""Training that goes on after a loss, and computes what it would have without it."""

import os
import signal

import numpy as np
import pytest

import telegrad as tg
import telegrad.distributed.autograd as dist_autograd
from telegrad import nn, optim
from telegrad.distributed import LocalCluster, RemoteModule, rpc
from telegrad.distributed.optim import DistributedOptimizer
from telegrad.distributed.survival import training as training_module
from telegrad.errors import CallTimeout, ShapeError, UsageError, WorkerLost

pytestmark = pytest.mark.processes
STEPS = 12


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(["body", "head", "keeper"], restart=True) as cluster:
        yield cluster


def layer(seed, *sizes):
    tg.manual_seed(seed)
    return nn.Linear(*sizes)


def build(width=8):
    body = RemoteModule("body", layer, (1, 3, width))
    head = RemoteModule("head", layer, (2, width, 1))
    parameters = [*body.remote_parameters(), *head.remote_parameters()]
    optimizer = DistributedOptimizer(optim.Adam, parameters, lr=0.05)
    scheduler = optimizer.schedule(optim.lr_scheduler.StepLR, step_size=4)
    return {"body": body, "head": head, "optimizer": optimizer, "scheduler": scheduler}


def run(cluster, harm=lambda number, when: None, **options):
    losses = [None] * STEPS
    training = cluster.training(build, STEPS, snapshot_every=5, **options)
    for step in training:
        with step as context_id:
            harm(step.number, "before")
            x = tg.tensor(np.random.default_rng(step.number).normal(size=(4, 3)))
            loss = (step["head"](step["body"](x).tanh()) ** 2).mean()
            harm(step.number, "between")
            dist_autograd.backward(context_id, [loss])
            step["optimizer"].step(context_id)
            step["scheduler"].step()
            losses[step.number] = loss.item()
            harm(step.number, "after")
    parameters = {
        f"{part}.{name}": np.asarray(value).tobytes()
        for part in ("body", "head")
        for name, value in training.parts[part].state_dict().items()
    }
    return losses, parameters, training


@pytest.fixture(scope="module")
def undisturbed(cluster):
    return run(cluster)


class Harm:
    """Kills workers, each once, at a step and a moment in it."""

    def __init__(self, cluster, *plan, by=signal.SIGKILL):
        self.cluster = cluster
        self.plan = set(plan)
        self.by = by

    def __call__(self, number, when):
        for each in [each for each in self.plan if each[:2] == (number, when)]:
            self.plan.remove(each)
            os.kill(self.cluster.process(each[2]).pid, self.by)


@pytest.mark.parametrize("when", ["before", "between", "after"])
@pytest.mark.parametrize("who", ["body", "head"])
def test_a_killed_worker_changes_no_bit(cluster, undisturbed, when, who):
    losses, parameters, training = run(cluster, Harm(cluster, (7, when, who)))
    assert training.losses >= 1
    assert losses == undisturbed[0]
    assert parameters == undisturbed[1]


def test_several_losses_one_of_them_of_two_workers_change_no_bit(cluster, undisturbed, tmp_path):
    harm = Harm(cluster, (2, "after", "head"), (9, "between", "head"), (9, "between", "body"))
    losses, parameters, training = run(cluster, harm, snapshots=tmp_path)
    assert not harm.plan
    assert training.losses >= 2
    assert (losses, parameters) == undisturbed[:2]


def test_a_peer_may_keep_the_snapshots(cluster, undisturbed):
    harm = Harm(cluster, (7, "between", "head"))
    losses, parameters, _ = run(cluster, harm, snapshots="keeper")
    assert (losses, parameters) == undisturbed[:2]


def test_a_directory_is_gone_on_from_by_the_next_run(cluster, undisturbed, tmp_path):
    class Stop(Exception):
        pass

    def stop(number, when):
        if (number, when) == (7, "between"):
            raise Stop

    with pytest.raises(Stop):
        run(cluster, stop, snapshots=tmp_path)
    losses, parameters, training = run(cluster, snapshots=tmp_path)
    assert training.losses == 0
    assert losses[:5] == [None] * 5, "those were done before"
    assert losses[5:] == undisturbed[0][5:]
    assert parameters == undisturbed[1]


def test_an_error_without_a_loss_is_the_programs_own(cluster):
    def fail(number, when):
        if number == 3:
            raise CallTimeout("mine")

    with pytest.raises(CallTimeout, match="mine"):
        run(cluster, fail)


def test_a_restore_with_other_shapes_or_parts_is_refused_and_says_of_what(cluster, tmp_path):
    run(cluster, snapshots=tmp_path)
    with pytest.raises(ShapeError, match=r"shape") as caught:
        list(cluster.training(lambda: build(width=4), STEPS, snapshots=tmp_path))
    assert "'body' was restored from the snapshot of step 12" in caught.value.__notes__[-1]
    fewer = cluster.training(lambda: {"body": build()["body"]}, STEPS, snapshots=tmp_path)
    with pytest.raises(
        UsageError, match=r"a snapshot of \['body'\], that of step 12 has \['body',"
    ):
        list(fewer)


def test_a_step_that_is_not_entered_is_an_error(cluster):
    with pytest.raises(UsageError, match="expected the work of a step inside of `with step"):
        for step in cluster.training(build, 3):
            assert repr(step) == "<Step 0 of 3>"


@pytest.mark.parametrize(
    ("build", "steps", "every", "message"),
    [
        ({}, 3, 1, "a function that builds the parts, got a dict"),
        (build, -1, 1, "steps of 0 or more and snapshot_every of 1 or more, got -1 and 1"),
        (build, 3, 0, "got 3 and 0"),
    ],
)
def test_what_makes_no_sense_is_refused(cluster, build, steps, every, message):
    with pytest.raises(UsageError, match=message):
        cluster.training(build, steps, snapshot_every=every)


def test_a_worker_that_never_comes_back_ends_the_loop_with_the_reason():
    said = r"'head' won't come back: .*restart=False"
    with LocalCluster(["body", "head"]) as small, pytest.raises(UsageError, match=said):
        run(small, Harm(small, (3, "between", "head")))


def test_losses_without_end_are_given_up(cluster, monkeypatch):
    monkeypatch.setattr(training_module, "_MOST_LOSSES", 2)
    training = cluster.training(build, 3)
    monkeypatch.setattr(training, "is_loss", lambda error: True)

    def fail():
        raise WorkerLost("again")

    monkeypatch.setattr(training, "_begin", fail)
    with pytest.raises(WorkerLost, match="again"):
        list(training)
    assert training.losses == 2
    assert rpc.get_worker_info().name == "main"
