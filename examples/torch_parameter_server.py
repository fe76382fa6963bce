"""A PyTorch model whose first half is here and whose second half is on another process.

Its modules, its loss and its optimiser are PyTorch's; the calls, the backward pass over both
processes and the steps on both are telegrad's. At the end the same model is trained by PyTorch
alone, in one process: the losses are the same.

    python examples/torch_parameter_server.py [--quick]
"""

import argparse
import sys

import torch
from torch import nn

from telegrad.data import digits
from telegrad.distributed import LocalCluster, RemoteModule, autograd, rpc
from telegrad.distributed.optim import DistributedOptimizer

HIDDEN, BATCH = 64, 64
OPTIMIZER = {"lr": 0.01}


def make_body():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, HIDDEN), nn.ReLU())


def make_head():
    """Runs on the server."""
    torch.set_num_threads(1)
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 10))


def batches(steps):
    """The same random batches of digits each time."""
    images, labels = (torch.from_numpy(each) for each in digits())
    images, labels = images.reshape(-1, 64).float(), labels.long()
    chosen = torch.Generator().manual_seed(3)
    for _ in range(steps):
        rows = torch.randint(len(images), (BATCH,), generator=chosen)
        yield images[rows], labels[rows]


def train_apart(steps):
    """The head on the server; the losses."""
    body = make_body()
    head = RemoteModule("server", make_head)
    references = [*(rpc.RRef(p) for p in body.parameters()), *head.parameters()]
    optimizer = DistributedOptimizer(torch.optim.Adam, references, **OPTIMIZER)
    losses = []
    for images, labels in batches(steps):
        with autograd.context() as context_id:
            loss = nn.functional.cross_entropy(head(body(images)), labels)
            autograd.backward(context_id, [loss])
            optimizer.step(context_id)
        losses.append(loss.item())
    return losses


def train_alone(steps):
    """The same with PyTorch alone."""
    model = nn.Sequential(make_body(), make_head())
    optimizer = torch.optim.Adam(model.parameters(), **OPTIMIZER)
    losses = []
    for images, labels in batches(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(steps):
    torch.set_num_threads(1)
    with LocalCluster(["server"]):
        apart = train_apart(steps)
    alone = train_alone(steps)
    difference = max(abs(a - b) for a, b in zip(apart, alone))
    print(f"loss {apart[0]:.4f} → {apart[-1]:.4f} over two processes in {steps} steps")
    print(f"loss {alone[0]:.4f} → {alone[-1]:.4f} in one, by PyTorch alone")
    print(f"the two differ by at most {difference:.2g}")
    if difference > 1e-4 or not apart[-1] < apart[0] / 2:
        sys.exit("expected the same losses, and less than half of the first one at the end")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    main(steps=40 if parser.parse_args().quick else 300)
