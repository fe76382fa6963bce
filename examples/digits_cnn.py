"""Handwritten digits by a small convolutional network, in one process and over two workers.

The same network is trained twice: here, and with its convolutions on one worker and its last layer
on another. Both runs must have the same losses; at least 97 % of the held-out digits must be read
right. ``--quick`` takes a few steps and checks the losses alone. ``--device cuda`` is for a GPU.
"""

import os
from pathlib import Path
from typing import Any

# The workers share the machine's cores, so each keeps to one; before NumPy reads it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from showing import arguments, progress, save_picture

import telegrad as tg
from telegrad import nn, optim
from telegrad.distributed import LocalCluster
from telegrad.distributed import autograd as distributed_autograd
from telegrad.distributed.optim import DistributedOptimizer
from telegrad.distributed.remote_module import RemoteModule

BATCH, RATE, EPOCHS, HELD_OUT = 64, 2e-3, 15, 360


class Features(nn.Module):
    """Images to 128 features."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )

    def forward(self, images: Any) -> Any:
        return self.layers(images).reshape(images.shape[0], -1)


def batches(count: int, epochs: int, most: int) -> list[Any]:
    """Which images each step takes: all of them once an epoch, in a new order."""
    generator = tg.Generator(7)
    found = []
    for _ in range(epochs):
        order = tg.permutation(count, generator=generator).numpy()
        found += [order[i : i + BATCH] for i in range(0, count - BATCH + 1, BATCH)]
    return found[:most]


def parts(device: str) -> tuple[nn.Module, nn.Module]:
    """Both parts of the network, the same on every call."""
    tg.manual_seed(0)
    return Features().to(device), nn.Linear(128, 10).to(device)


def train_here(
    images: Any, labels: Any, steps: list[Any], device: str
) -> tuple[nn.Module, list[float]]:
    model = nn.Sequential(*parts(device))
    optimizer = optim.Adam(model.parameters(), lr=RATE)
    loss_of = nn.CrossEntropyLoss()
    losses = []
    with progress("one process", len(steps)) as advance:
        for chosen in steps:
            optimizer.zero_grad()
            batch = tg.tensor(images[chosen], device=device)
            loss = loss_of(model(batch), tg.tensor(labels[chosen]))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            advance(losses[-1])
    return model, losses


def train_split(images: Any, labels: Any, steps: list[Any], device: str) -> list[float]:
    loss_of = nn.CrossEntropyLoss()
    losses = []
    with LocalCluster(["features", "classes"]), progress("two workers", len(steps)) as advance:
        first = RemoteModule(f"features/{device}", Features)
        second = RemoteModule(f"classes/{device}", nn.Linear, (128, 10))
        for remote, local in zip((first, second), parts(device)):
            remote.load_state_dict(local.state_dict())
        parameters = [*first.parameters(), *second.parameters()]
        optimizer = DistributedOptimizer(optim.Adam, parameters, lr=RATE)
        for chosen in steps:
            with distributed_autograd.context() as context:
                scores = second(first(tg.tensor(images[chosen], device=device)))
                loss = loss_of(scores, tg.tensor(labels[chosen]))
                distributed_autograd.backward(context, [loss])
                optimizer.step(context)
            losses.append(loss.item())
            advance(losses[-1])
    return losses


def accuracy(model: nn.Module, images: Any, labels: Any, device: str) -> float:
    with tg.no_grad():
        scores = model.eval()(tg.tensor(images, device=device))
    return float(np.mean(np.argmax(scores.numpy(), axis=1) == labels))


def main() -> None:
    options = arguments(__doc__ or "", has_device=True)
    images, labels = tg.data.digits()
    images = images[:, None]
    order = tg.permutation(len(images), generator=tg.Generator(1)).numpy()
    train, test = order[HELD_OUT:], order[:HELD_OUT]
    steps = batches(len(train), EPOCHS, 6 if options.quick else 10_000)
    model, here = train_here(images[train], labels[train], steps, options.device)
    split = train_split(images[train], labels[train], steps, options.device)
    difference = max(abs(a - b) for a, b in zip(here, split))
    print(f"largest difference of the losses of {len(steps)} steps: {difference:.3g}")
    assert difference < 1e-5, "the split network must train as the whole one"
    right = accuracy(model, images[test], labels[test], options.device)
    print(f"held-out digits read right: {right:.1%}")
    save_picture(
        Path(options.out) / "digits_cnn.svg",
        "Digits by a small CNN",
        {"one process": here, "two workers": split},
    )
    if not options.quick:
        assert right >= 0.97, "expected at least 97 % of the held-out digits"


if __name__ == "__main__":
    main()
