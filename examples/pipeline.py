"""A pipeline of four stages, each on a worker of its own, fed with micro-batches.

A batch is cut into micro-batches that are under way at the same time: while one is in the last
stage, the next is in the one before. A stage hands its result straight on to the next worker. One
backward pass then runs through all of it, and its gradients are compared with those of the same
model and the whole batch in one process.

    python examples/pipeline.py [--quick]
"""

import argparse
import sys
import time
from itertools import pairwise

import numpy as np

import telegrad as tg
from telegrad import nn, optim
from telegrad.data import digits
from telegrad.distributed import LocalCluster, RemoteModule, autograd, rpc
from telegrad.distributed.optim import DistributedOptimizer

WORKERS = ["one", "two", "three", "four"]
SIZES = [64, 128, 96, 64, 10]
BATCH, PIECES = 128, 4


class Stage(nn.Module):
    """A layer with its activation; the last stage has none."""

    def __init__(self, inputs, outputs, is_last):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.is_last = is_last

    def forward(self, x):
        y = self.linear(x)
        return y if self.is_last else tg.relu(y)


def run_from(stages, x):
    """Runs the first of these stages here, and the others on their workers."""
    y = stages[0].local_value()(x)
    return rpc.rpc_sync(stages[1].owner(), run_from, (stages[1:], y)) if len(stages) > 1 else y


def loss_of(stages, x, labels):
    """The loss of a batch whose pieces are under way at the same time."""
    pieces = [
        rpc.rpc_async(stages[0].owner(), run_from, (stages, tg.tensor(piece)))
        for piece in np.split(x, PIECES)
    ]
    scores = tg.concat([piece.wait() for piece in pieces])
    return nn.functional.cross_entropy(scores, tg.tensor(labels))


def gradients_of(stage, context_id):
    """The gradients of a stage's parameters, on its worker."""
    found = autograd.get_gradients(context_id)
    return [found[parameter] for parameter in stage.local_value().parameters()]


def check(modules, stages, x, labels):
    """The largest difference of a gradient from that of one process."""
    with autograd.context() as context_id:
        autograd.backward(context_id, [loss_of(stages, x, labels)])
        theirs = [rpc.rpc_sync(each.owner(), gradients_of, (each, context_id)) for each in stages]
    twins = [Stage(a, b, b == SIZES[-1]) for a, b in pairwise(SIZES)]
    for twin, module in zip(twins, modules):
        twin.load_state_dict(module.state_dict())
    nn.functional.cross_entropy(nn.Sequential(*twins)(tg.tensor(x)), tg.tensor(labels)).backward()
    return max(
        float(np.abs(parameter.grad.numpy() - gradient.numpy()).max())
        for twin, gradients in zip(twins, theirs)
        for parameter, gradient in zip(twin.parameters(), gradients, strict=True)
    )


def main(steps):
    images, labels = digits()
    images = images.reshape(-1, 64)
    with LocalCluster(WORKERS):
        shapes = pairwise(SIZES)
        modules = [
            RemoteModule(worker, Stage, (a, b, b == SIZES[-1]))
            for worker, (a, b) in zip(WORKERS, shapes)
        ]
        stages = [module.module_rref for module in modules]
        parameters = [p for module in modules for p in module.parameters()]
        optimizer = DistributedOptimizer(optim.Adam, parameters, lr=0.003)
        rng = np.random.default_rng(0)
        for step in range(steps):
            rows = rng.integers(0, len(images), BATCH)
            begin = time.perf_counter()
            with autograd.context() as context_id:
                loss = loss_of(stages, images[rows], labels[rows])
                autograd.backward(context_id, [loss])
                optimizer.step(context_id)
            if step % max(1, steps // 6) == 0 or step == steps - 1:
                took = time.perf_counter() - begin
                print(f"step {step:>4}: loss {loss.item():.4f}, {took * 1e3:.1f} ms")
        difference = check(modules, stages, images[:BATCH], labels[:BATCH])
    print(
        f"{PIECES} micro-batches beside one process: gradients differ by at most {difference:.2g}"
    )
    if difference > 1e-5:
        sys.exit("expected a difference of at most 1e-5")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    main(10 if parser.parse_args().quick else 120)
