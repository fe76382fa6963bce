"""Learning rates by differentiating through training, over workers.

Two workers have the halves of a data set, a third one the examples that judge. Some steps of
descent train a model; the loss at their end depends on the learning rate of each step, and its
gradient goes back through all steps, over all workers. The rates descend along it. One gradient is
compared with differences of the whole training.

    python examples/hypergradients.py [--quick]
"""

import argparse
import sys

import numpy as np

import telegrad as tg
from telegrad.data import digits
from telegrad.distributed import LocalCluster, autograd, rpc

STEPS, CLASSES = 4, 10
ROWS = {"left": slice(0, 300), "right": slice(300, 600), "judge": slice(600, 1000)}


class Shard:
    """The examples of one worker, which stay there."""

    def __init__(self, rows):
        images, labels = digits()
        self.images = tg.tensor(images[rows].reshape(-1, 64).astype(np.float64))
        self.labels = tg.tensor(labels[rows].astype(np.int64))

    def loss(self, weight, bias):
        return tg.nn.functional.cross_entropy(self.images @ weight + bias, self.labels)


def trained_loss(shards, log_rates, gradients):
    """The judge's loss after the training; all of it can be differentiated."""
    parameters = [tg.zeros((64, CLASSES), dtype=tg.float64), tg.zeros(CLASSES, dtype=tg.float64)]
    for p in parameters:
        p.requires_grad_()
    rates = tg.exp(log_rates)
    for step in range(STEPS):
        parts = [shards[name].rpc_async().loss(*parameters) for name in ("left", "right")]
        steps = gradients(sum(part.wait() for part in parts) / 2.0, parameters)
        parameters = [p - rates[step] * g for p, g in zip(parameters, steps)]
    return shards["judge"].rpc_sync().loss(*parameters)


def loss_and_gradient(shards, log_rates):
    with autograd.context() as context_id:

        def gradients(loss, inputs):
            return autograd.grad(context_id, loss, inputs, create_graph=True)

        leaf = tg.tensor(log_rates, requires_grad=True)
        loss = trained_loss(shards, leaf, gradients)
        autograd.backward(context_id, [loss])
        return loss.item(), np.array(autograd.get_gradients(context_id)[leaf].numpy())


def main(steps):
    with LocalCluster(list(ROWS)):
        shards = {name: rpc.remote(name, Shard, (rows,)) for name, rows in ROWS.items()}
        log_rates = np.full(STEPS, np.log(0.1))
        losses = []
        for step in range(steps):
            loss, gradient = loss_and_gradient(shards, log_rates)
            if step == 0:
                direction, size = np.linspace(1.0, -0.5, STEPS), 1e-4
                ahead, behind = (
                    loss_and_gradient(shards, log_rates + sign * size * direction)[0]
                    for sign in (1, -1)
                )
                by_differences, by_gradient = (ahead - behind) / (2 * size), gradient @ direction
            log_rates = log_rates - 0.5 * gradient / np.linalg.norm(gradient)
            losses.append(loss)
    rates = ", ".join(f"{rate:.2f}" for rate in np.exp(log_rates))
    print(f"{STEPS} steps of training on two workers, judged on a third")
    print(f"loss after the training {losses[0]:.4f} → {losses[-1]:.4f}; rates 0.10 → {rates}")
    print(f"slope along a direction: {by_gradient:.8f}, by differences {by_differences:.8f}")
    if abs(by_gradient - by_differences) > 1e-6 * abs(by_differences):
        sys.exit("expected the slope that differences give")
    if not losses[-1] < losses[0] - 0.05:
        sys.exit("expected rates that train better")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    main(steps=6 if parser.parse_args().quick else 40)
