"""MAML over two workers with PyTorch's tensors: a gradient of what a gradient step leads to.

A small network learns to learn sine waves: from a few points of a new wave, one step of descent is
to fit all of it. Its layers run on two workers, so the inner gradient goes over both of them, and
the meta-gradient goes over the same calls a second time. It is compared with PyTorch alone.

    python examples/torch_maml.py [--quick]
"""

import argparse
import sys

import torch

from telegrad.distributed import LocalCluster, autograd, rpc

WIDTH, POINTS, TASKS, INNER_RATE = 24, 10, 4, 0.1


def lower(x, weight, bias):
    return torch.tanh(x @ weight + bias)


def upper(hidden, weight, bias, readout):
    return torch.tanh(hidden @ weight + bias) @ readout


def first_parameters():
    made = torch.Generator().manual_seed(0)
    shapes = [(1, WIDTH), (WIDTH,), (WIDTH, WIDTH), (WIDTH,), (WIDTH, 1)]
    scales = [1.0, 1.0, WIDTH**-0.5, 0.1, WIDTH**-0.5]
    return [
        (scale * torch.randn(shape, generator=made)).double().requires_grad_()
        for shape, scale in zip(shapes, scales)
    ]


def tasks(chosen):
    """Waves of random height and phase: points to adapt to, and points to be judged by."""
    for _ in range(TASKS):
        height, phase = torch.rand(2, generator=chosen).double() * torch.tensor([2.0, 3.0]) + 0.5
        x = torch.rand(2 * POINTS, 1, generator=chosen).double() * 6 - 3
        y = height * torch.sin(x + phase)
        yield x[:POINTS], y[:POINTS], x[POINTS:], y[POINTS:]


def meta_loss(network, grad, parameters, waves):
    """The mean loss after one step of descent on each wave."""
    total = 0.0
    for x, y, other_x, other_y in waves:
        loss = (network(x, parameters) - y).square().mean()
        steps = grad(loss, parameters)
        adapted = [p - INNER_RATE * g for p, g in zip(parameters, steps)]
        total = total + (network(other_x, adapted) - other_y).square().mean()
    return total / TASKS


def alone(x, p):
    return upper(lower(x, *p[:2]), *p[2:])


def over_workers(x, p):
    return rpc.rpc_sync("upper", upper, (rpc.rpc_sync("lower", lower, (x, *p[:2])), *p[2:]))


def main(steps):
    torch.set_num_threads(1)
    parameters = first_parameters()
    optimizer = torch.optim.Adam(parameters, lr=0.01)
    chosen = torch.Generator().manual_seed(1)
    losses, furthest = [], 0.0
    with LocalCluster(["lower", "upper"]):
        for step in range(steps):
            waves = list(tasks(chosen))
            with autograd.context() as context_id:

                def grad(loss, inputs, context_id=context_id):
                    return autograd.grad(context_id, loss, inputs, create_graph=True)

                loss = meta_loss(over_workers, grad, parameters, waves)
                autograd.backward(context_id, [loss])
                found = autograd.get_gradients(context_id)
                for p in parameters:
                    p.grad = found[p]
            if step in (0, steps - 1):

                def grad_alone(loss, inputs):
                    return torch.autograd.grad(loss, inputs, create_graph=True)

                here = meta_loss(alone, grad_alone, parameters, waves)
                for p, g in zip(parameters, torch.autograd.grad(here, parameters)):
                    furthest = max(furthest, (p.grad - g).abs().max().item())
            optimizer.step()
            losses.append(loss.item())
    few = max(1, steps // 4)
    before, after = (sum(part) / few for part in (losses[:few], losses[-few:]))
    print(f"{steps} steps over {TASKS} waves each, one inner step of descent over two workers")
    print(f"loss after adapting {before:.3f} → {after:.3f} (means of {few} steps)")
    print(f"meta-gradients differ from PyTorch alone by at most {furthest:.2g}")
    if furthest > 1e-10 or not after < before:
        sys.exit("expected the same meta-gradients, and a network that adapts better")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    main(steps=12 if parser.parse_args().quick else 150)
