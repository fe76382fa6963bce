"""A gradient penalty across workers: a loss that contains a gradient, differentiated again.

A critic has its two layers on two workers. It should score points of a ring higher than points of
a disc, while its slope with respect to its input stays near one: the penalty of Wasserstein GANs.
That slope is a gradient through both workers; the backward pass of the loss goes through them a
second time. The gradients are compared with those of the same critic in one process.

    python examples/gradient_penalty.py [--quick]
"""

import argparse
import sys

import numpy as np

import telegrad as tg
from telegrad import nn, optim
from telegrad.distributed import LocalCluster, RemoteModule, autograd, rpc
from telegrad.distributed.optim import DistributedOptimizer

WIDTH, BATCH, WEIGHT = 32, 64, 10.0


def points(rng):
    """Points of a ring, points of a disc, and points on the lines between them."""
    angle = rng.uniform(0, 2 * np.pi, BATCH)
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1) * 2
    disc = rng.standard_normal((BATCH, 2)) * 0.5
    share = rng.uniform(0, 1, (BATCH, 1))
    return ring, disc, ring * share + disc * (1 - share)


def loss_of(critic, gradient, ring, disc, between):
    """How badly the critic separates them, and how far its slope is from one."""
    apart = critic(tg.tensor(disc)).mean() - critic(tg.tensor(ring)).mean()
    x = tg.tensor(between, requires_grad=True)
    slope = gradient(critic(x).sum(), x)
    steepness = tg.sqrt((slope**2).sum(axis=1) + 1e-12)
    return apart + WEIGHT * ((steepness - 1) ** 2).mean(), steepness.detach()


def gradients_of(module, context_id):
    """The gradients of a module's parameters, on its worker."""
    found = autograd.get_gradients(context_id)
    return [found.get(parameter) for parameter in module.local_value().parameters()]


def double_linear(inputs, outputs):
    return nn.Linear(inputs, outputs, dtype=tg.float64)


def main(steps):
    with LocalCluster(["first", "second"]):
        layers = [
            RemoteModule("first", double_linear, (2, WIDTH)),
            RemoteModule("second", double_linear, (WIDTH, 1)),
        ]
        parameters = [p for layer in layers for p in layer.parameters()]
        optimizer = DistributedOptimizer(optim.Adam, parameters, lr=0.01)

        def critic(x):
            return layers[1](tg.tanh(layers[0](x)))

        rng = np.random.default_rng(0)
        for step in range(steps):
            with autograd.context() as context_id:

                def gradient(y, x, context_id=context_id):
                    return autograd.grad(context_id, y, x, create_graph=True)[0]

                batch = points(rng)
                loss, steepness = loss_of(critic, gradient, *batch)
                before = [layer.state_dict() for layer in layers]
                autograd.backward(context_id, [loss])
                optimizer.step(context_id)
                if step == steps - 1:
                    theirs = [
                        rpc.rpc_sync(each.on, gradients_of, (each.module_rref, context_id))
                        for each in layers
                    ]
            if step % max(1, steps // 6) == 0 or step == steps - 1:
                slope = steepness.mean().item()
                print(f"step {step:>4}: loss {loss.item():+.4f}, mean slope {slope:.3f}")

    # The last step again, in one process.
    twins = [double_linear(2, WIDTH), double_linear(WIDTH, 1)]
    for twin, state in zip(twins, before):
        twin.load_state_dict(state)
    here = loss_of(
        lambda x: twins[1](tg.tanh(twins[0](x))),
        lambda y, x: tg.autograd.grad(y, x, create_graph=True)[0],
        *batch,
    )[0]
    here.backward()
    difference = 0.0
    for twin, gradients in zip(twins, theirs):
        for parameter, gradient in zip(twin.parameters(), gradients, strict=True):
            mine = 0.0 if parameter.grad is None else parameter.grad.numpy()
            other = 0.0 if gradient is None else gradient.numpy()
            difference = max(difference, float(np.abs(mine - other).max()))
    print(f"gradients through the penalty differ from one process by at most {difference:.2g}")
    if difference > 1e-10:
        sys.exit("expected a difference of at most 1e-10")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    main(8 if parser.parse_args().quick else 150)
