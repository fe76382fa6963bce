"""A parameter server with several trainers that don't wait for each other.

The server has the parameters of a digit classifier. Each trainer is a worker with its own share of
the data: it fetches scores from the server, runs its backward pass, and steps the parameters, at
its own pace. Steps are serialised on the server, and a pass that began before the step of another
trainer still gives the gradients of the parameters that it saw.

    python examples/parameter_server.py [--quick]
"""

import argparse
import sys
import threading
from contextvars import Context

import numpy as np

import telegrad as tg
from telegrad import nn, optim
from telegrad.data import digits
from telegrad.distributed import LocalCluster, RemoteModule, autograd, rpc
from telegrad.distributed.optim import DistributedOptimizer

TRAINERS = ["ann", "bob", "cleo"]
HELD_OUT, BATCH, RATE = 360, 64, 0.5


def load(is_held_out):
    """The digits as rows of 64 pixels, in a random but fixed order."""
    images, labels = digits()
    order = np.random.default_rng(0).permutation(len(images))
    chosen = order[:HELD_OUT] if is_held_out else order[HELD_OUT:]
    return images.reshape(-1, 64)[chosen], labels[chosen]


def batches(share, shares, steps, seed):
    """Random batches out of one trainer's share of the digits."""
    images, labels = load(is_held_out=False)
    images, labels = images[share::shares], labels[share::shares]
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        rows = rng.integers(0, len(images), BATCH)
        yield tg.tensor(images[rows]), tg.tensor(labels[rows])


def score(module, x):
    """Runs on the server, which has the module."""
    return module.local_value()(x)


def train(module, parameters, share, steps, seed):
    """Runs on a trainer: so many steps, whatever the others do; the mean loss."""
    optimizer = DistributedOptimizer(optim.SGD, parameters, lr=RATE)
    losses = []
    for x, labels in batches(share, len(TRAINERS), steps, seed):
        with autograd.context() as context_id:
            scores = rpc.rpc_sync("server", score, (module, x))
            loss = nn.functional.cross_entropy(scores, labels)
            autograd.backward(context_id, [loss])
            optimizer.step(context_id)
        losses.append(loss.item())
    return sum(losses) / len(losses)


def gradient_beside_a_step(module, parameters):
    """A gradient whose parameters are stepped between forward and backward; the value they had."""
    optimizer = DistributedOptimizer(optim.SGD, parameters, lr=RATE)
    x, labels = next(batches(0, 1, 1, seed=99))
    before = module.state_dict()
    x.requires_grad_()

    def step_in_between():
        with autograd.context() as context_id:
            loss = nn.functional.cross_entropy(module(x.detach()), labels)
            autograd.backward(context_id, [loss])
            optimizer.step(context_id)

    with autograd.context() as context_id:
        loss = nn.functional.cross_entropy(module(x), labels)
        # Outside of this context, also where a new thread begins with who starts it.
        other = threading.Thread(target=Context().run, args=(step_in_between,))
        other.start()
        other.join()
        autograd.backward(context_id, [loss])
        found = autograd.get_gradients(context_id)[x].numpy()
    twin = nn.Linear(64, 10)
    twin.load_state_dict(before)
    x = x.detach().requires_grad_()
    nn.functional.cross_entropy(twin(x), labels).backward()
    return float(np.abs(found - x.grad.numpy()).max())


def accuracy(module):
    images, labels = load(is_held_out=True)
    with tg.no_grad():
        return float((module(tg.tensor(images)).numpy().argmax(axis=1) == labels).mean())


def main(rounds, steps):
    with LocalCluster(["server", *TRAINERS]):
        module = RemoteModule("server", nn.Linear, (64, 10))
        twin = nn.Linear(64, 10)
        twin.load_state_dict(module.state_dict())
        parameters = module.parameters()
        for i in range(rounds):
            running = {
                name: rpc.rpc_async(
                    name, train, (module.module_rref, parameters, share, steps, i * 10 + share)
                )
                for share, name in enumerate(TRAINERS)
            }
            losses = "  ".join(f"{name} {call.wait():.4f}" for name, call in running.items())
            print(f"round {i + 1}/{rounds}: {accuracy(module):.1%} held-out; losses: {losses}")
        reached = accuracy(module)
        difference = gradient_beside_a_step(module, parameters)

    # As many steps in one process.
    optimizer = optim.SGD(twin.parameters(), lr=RATE)
    for x, labels in batches(0, 1, rounds * steps * len(TRAINERS), seed=5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(twin(x), labels).backward()
        optimizer.step()
    alone = accuracy(twin)
    print(f"{reached:.1%} with {len(TRAINERS)} trainers, {alone:.1%} with as many steps alone")
    print(f"a pass that another trainer's step came into differs by at most {difference:.2g}")
    if abs(reached - alone) > 0.05 or difference > 1e-6:
        sys.exit("expected an accuracy within 5 % of that, and a difference of at most 1e-6")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    quick = parser.parse_args().quick
    main(rounds=3 if quick else 6, steps=12 if quick else 40)
