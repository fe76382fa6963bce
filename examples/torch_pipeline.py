"""A PyTorch model in two stages on two other processes, fed with micro-batches.

Each stage has an `nn.Module`; a micro-batch goes from here to the first, which hands its result
straight on to the second. One backward pass runs through all of it. Its gradients, and the model
after some steps, are compared with those of PyTorch alone.

    python examples/torch_pipeline.py [--quick]
"""

import argparse
import sys

import torch
from torch import nn

from telegrad.data import digits
from telegrad.distributed import LocalCluster, RemoteModule, autograd, rpc
from telegrad.distributed.optim import DistributedOptimizer

BATCH, PIECES = 96, 3
OPTIMIZER = {"lr": 0.5, "momentum": 0.5}


def make_stage(number):
    """Runs on the stage's worker."""
    torch.set_num_threads(1)
    torch.manual_seed(number)
    return nn.Sequential(nn.Linear(64, 64), nn.Tanh()) if number == 0 else nn.Linear(64, 10)


def run_from(stages, x):
    """Runs the first of these stages here, and the others on their workers."""
    y = stages[0].local_value()(x)
    return rpc.rpc_sync(stages[1].owner(), run_from, (stages[1:], y)) if len(stages) > 1 else y


def loss_of(stages, images, labels):
    """The loss of a batch whose pieces are under way at the same time."""
    pieces = [
        rpc.rpc_async(stages[0].owner(), run_from, (stages, piece))
        for piece in images.chunk(PIECES)
    ]
    return nn.functional.cross_entropy(torch.cat([piece.wait() for piece in pieces]), labels)


def gradients_of(module, context_id):
    """The gradients of a module's parameters, on its worker."""
    found = autograd.get_gradients(context_id)
    return [found[parameter] for parameter in module.local_value().parameters()]


def batches(steps):
    """The same random batches of digits each time."""
    images, labels = (torch.from_numpy(each) for each in digits())
    images, labels = images.reshape(-1, 64).float(), labels.long()
    chosen = torch.Generator().manual_seed(3)
    for _ in range(steps):
        rows = torch.randint(len(images), (BATCH,), generator=chosen)
        yield images[rows], labels[rows]


def main(steps):
    torch.set_num_threads(1)
    alone = nn.Sequential(make_stage(0), make_stage(1))
    optimizer_alone = torch.optim.SGD(alone.parameters(), **OPTIMIZER)
    furthest, losses = 0.0, []
    with LocalCluster(["one", "two"]):
        modules = [RemoteModule(on, make_stage, (i,)) for i, on in enumerate(["one", "two"])]
        stages = [module.get_module_rref() for module in modules]
        parameters = [each for module in modules for each in module.parameters()]
        optimizer = DistributedOptimizer(torch.optim.SGD, parameters, **OPTIMIZER)
        for images, labels in batches(steps):
            optimizer_alone.zero_grad()
            nn.functional.cross_entropy(alone(images), labels).backward()
            with autograd.context() as context_id:
                loss = loss_of(stages, images, labels)
                autograd.backward(context_id, [loss])
                found = [
                    gradient
                    for stage in stages
                    for gradient in rpc.rpc_sync(stage.owner(), gradients_of, (stage, context_id))
                ]
                optimizer.step(context_id)
            for gradient, parameter in zip(found, alone.parameters(), strict=True):
                furthest = max(furthest, (gradient - parameter.grad).abs().max().item())
            optimizer_alone.step()
            losses.append(loss.item())
    print(f"{len(stages)} stages, {PIECES} micro-batches a step, {steps} steps")
    print(f"loss {losses[0]:.4f} → {losses[-1]:.4f}")
    print(f"gradients differ from those of PyTorch alone by at most {furthest:.2g}")
    if furthest > 1e-4 or not losses[-1] < losses[0] / 2:
        sys.exit("expected the same gradients, and less than half of the first loss at the end")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    main(steps=20 if parser.parse_args().quick else 200)
