"""Train over two workers, lose one of them to SIGKILL in the middle, and end as if nothing was.

    python examples/survives.py          # on this machine, whose LocalCluster restarts it
    python examples/survives.py --ray    # on Ray, which does
    python examples/survives.py --quick  # fewer steps

The same training runs twice, undisturbed and with a loss. Losses and parameters are equal, bit for
bit: after the loss all owners go back to one snapshot and on from there.
"""

import logging
import os
import signal
import sys

import numpy as np

import telegrad as tg
import telegrad.distributed.autograd as dist_autograd
from telegrad import nn, optim
from telegrad.distributed import Cluster, LocalCluster, RayCluster, RemoteModule, rpc
from telegrad.distributed.optim import DistributedOptimizer

STEPS, EVERY, KILLED_IN = (12, 4, 6) if "--quick" in sys.argv else (30, 8, 19)


def layer(seed: int, *sizes: int) -> nn.Linear:
    """A layer, made where it is to live; the same for one seed."""
    tg.manual_seed(seed)
    return nn.Linear(*sizes)


def build() -> dict[str, object]:
    """The parts of the training, on the workers' present lives."""
    body = RemoteModule("body", layer, (1, 4, 16))
    head = RemoteModule("head", layer, (2, 16, 1))
    parameters = [*body.remote_parameters(), *head.remote_parameters()]
    optimizer = DistributedOptimizer(optim.Adam, parameters, lr=0.01)
    return {"body": body, "head": head, "optimizer": optimizer}


def batch(number: int) -> tuple[tg.Tensor, tg.Tensor]:
    """The data of a step, by its number alone: a step that is done again has the same."""
    x = np.random.default_rng(number).normal(size=(32, 4))
    return tg.tensor(x), tg.tensor(np.sin(x.sum(axis=1, keepdims=True)))


def train(cluster: Cluster, killed_in: int | None) -> tuple[list[float], dict[str, object]]:
    """The loss of each step, and the parameters at the end."""
    losses = [0.0] * STEPS
    training = cluster.training(build, STEPS, snapshot_every=EVERY)
    for step in training:
        with step as context_id:
            x, y = batch(step.number)
            loss = ((step["head"](step["body"](x).tanh()) - y) ** 2).mean()
            if step.number == killed_in:
                killed_in = None
                print(f"step {step.number}: killing 'head'")
                os.kill(rpc.rpc_sync("head", os.getpid), signal.SIGKILL)
            dist_autograd.backward(context_id, [loss])
            step["optimizer"].step(context_id)
            losses[step.number] = loss.item()
    print(f"{STEPS} steps, {training.losses} times back to a snapshot, last loss {losses[-1]:.6f}")
    return losses, {name: training.parts[name].state_dict() for name in ("body", "head")}


def main() -> None:
    """Train twice, and compare."""
    # What the cluster says of losses is part of the story.
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    on_ray = "--ray" in sys.argv
    workers = ["body", "head"]
    with RayCluster(workers) if on_ray else LocalCluster(workers, restart=True) as cluster:
        losses, calm = train(cluster, None)
        again, disturbed = train(cluster, KILLED_IN)
    same = all(
        np.array_equal(np.asarray(value), np.asarray(disturbed[part][name]))
        for part in workers
        for name, value in calm[part].items()
    )
    print("losses equal:", losses == again, " parameters equal:", same)
    if not (same and losses == again):
        raise SystemExit("they should be")


if __name__ == "__main__":
    main()
