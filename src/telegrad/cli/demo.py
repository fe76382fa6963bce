"""The main job: handwritten digits, classified by layers that live on three workers.

It starts a cluster on this machine, trains, compares one batch with the same model in one process,
and writes a trace, a picture of the graph and one of the loss.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import telegrad as tg
from telegrad import nn, optim
from telegrad.cli.command import Command
from telegrad.cli.meter import Meter
from telegrad.cli.progress import Progress, Step, progress_for
from telegrad.data import digits
from telegrad.distributed import LocalCluster
from telegrad.distributed import autograd as dist_autograd
from telegrad.distributed.optim import DistributedOptimizer
from telegrad.distributed.remote_module import RemoteModule
from telegrad.errors import UsageError
from telegrad.pictures import line_chart
from telegrad.profiler import profile
from telegrad.rpc.current import current_worker
from telegrad.tensors import Tensor

WORKERS = ("first", "second", "third")
LAYERS: tuple[tuple[type[nn.Module], tuple[Any, ...]], ...] = (
    (nn.Linear, (64, 96)),
    (nn.Linear, (96, 48)),
    (nn.Linear, (48, 10)),
)
HELD_OUT = 360
BATCH = 64
EPOCHS = 12
GOAL = 0.95
"""The held-out accuracy that so many epochs reach."""


class Split:
    """A classifier with one layer on each worker; this process computes the activations."""

    def __init__(self) -> None:
        self.layers = [
            RemoteModule(worker, kind, args) for worker, (kind, args) in zip(WORKERS, LAYERS)
        ]

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = tg.relu(layer(x))
        return self.layers[-1](x)  # type: ignore[no-any-return]

    def copy_here(self) -> nn.Sequential:
        """Return the same model, with the same parameters, in this process."""
        here = nn.Sequential(*(kind(*args) for kind, args in LAYERS))
        for mine, theirs in zip(here, self.layers):
            mine.load_state_dict(theirs.state_dict())
        return here


def seed_worker(seed: int) -> None:
    """Make the parameters that this worker will draw the same on every run."""
    tg.manual_seed(seed)


def largest_difference(model: Split, x: Tensor, labels: Tensor) -> float:
    """Return the largest difference between gradients here and in one process."""
    worst = 0.0
    with dist_autograd.context() as context_id:
        loss = nn.functional.cross_entropy(model(x), labels)
        dist_autograd.backward(context_id, [loss])
        theirs = [
            current_worker().rpc_sync(layer.on, gradients_of, (layer.module_rref, context_id))
            for layer in model.layers
        ]
    here = model.copy_here()
    first, second, third = here
    loss = nn.functional.cross_entropy(third(tg.relu(second(tg.relu(first(x))))), labels)
    loss.backward()
    for mine, gradients in zip(here, theirs):
        for parameter, gradient in zip(mine.parameters(), gradients, strict=True):
            assert parameter.grad is not None
            difference = np.abs(parameter.grad.numpy() - gradient.numpy()).max()
            worst = max(worst, float(difference))
    return worst


def gradients_of(module: Any, context_id: int) -> list[Tensor]:
    """Return the gradients of a module's parameters in a context, on the worker that has it."""
    gradients = dist_autograd.get_gradients(context_id)
    return [gradients[parameter] for parameter in module.local_value().parameters()]


def accuracy(model: Split, x: Tensor, labels: np.ndarray[Any, Any]) -> float:
    """Return the share of digits that the model classifies correctly."""
    with tg.no_grad():
        guesses = model(x).numpy().argmax(axis=1)
    return float((guesses == labels).mean())


def train_step(model: Split, optimizer: DistributedOptimizer, x: Tensor, labels: Tensor) -> float:
    """Update all layers once; return the loss before it."""
    with dist_autograd.context() as context_id:
        loss = nn.functional.cross_entropy(model(x), labels)
        dist_autograd.backward(context_id, [loss])
        optimizer.step(context_id)
    return float(loss.item())


def train(
    epochs: int, out: Path, progress: Progress, seed: int = 0
) -> tuple[list[float], float, float]:
    """Train over a cluster; return losses, held-out accuracy and the gradients' difference."""
    images, labels = digits()
    order = np.random.default_rng(seed).permutation(len(images))
    images, labels = images.reshape(-1, 64)[order], labels[order]
    test_x, test_labels = tg.tensor(images[:HELD_OUT]), labels[:HELD_OUT]
    train_x, train_labels = images[HELD_OUT:], labels[HELD_OUT:]
    losses: list[float] = []
    with LocalCluster(list(WORKERS)) as cluster:
        for i, name in enumerate(WORKERS):
            cluster.worker.rpc_sync(name, seed_worker, (seed + i,))
        model = Split()
        parameters = [p for layer in model.layers for p in layer.parameters()]
        optimizer = DistributedOptimizer(optim.Adam, parameters, lr=0.004)
        steps = len(train_x) // BATCH
        reached = accuracy(model, test_x, test_labels)
        cluster.worker.observer = meter = Meter()
        placed = {cluster.worker.name: "the activations and the loss"}
        placed.update((name, f"Linear {a}→{b}") for name, (_, (a, b)) in zip(WORKERS, LAYERS))
        progress.start(epochs * steps, placed, meter)
        try:
            for epoch in range(epochs):
                shuffled = np.random.default_rng(seed + epoch).permutation(len(train_x))
                for step in range(steps):
                    rows = shuffled[step * BATCH : (step + 1) * BATCH]
                    x, y = tg.tensor(train_x[rows]), tg.tensor(train_labels[rows])
                    begin, before = time.perf_counter(), meter.bytes
                    losses.append(train_step(model, optimizer, x, y))
                    took, moved = time.perf_counter() - begin, meter.bytes - before
                    if step == steps - 1:
                        reached = accuracy(model, test_x, test_labels)
                    progress.step(Step(losses[-1], reached, took, moved))
        finally:
            cluster.worker.observer = None
            progress.stop()
        x, y = tg.tensor(train_x[:BATCH]), tg.tensor(train_labels[:BATCH])
        difference = largest_difference(model, x, y)
        with dist_autograd.context() as context_id:
            with profile() as recording:
                loss = nn.functional.cross_entropy(model(x), y)
                dist_autograd.backward(context_id, [loss])
            dist_autograd.draw(context_id, loss).save(out / "graph.svg")
        recording.export(out / "trace.json")
        print(recording.summary())
    return losses, reached, difference


def main(epochs: int = EPOCHS, out: Path = Path("build/demo")) -> int:
    """Run the demo; return 1 if gradients differ or a whole run missed its goal, else 0."""
    if epochs < 1:
        raise UsageError(f"expected --epochs of at least 1, got {epochs}")
    out.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    losses, reached, difference = train(epochs, out, progress_for())
    chart = line_chart(
        {"training loss": losses},
        title="Digits over three workers",
        x_label="step",
        y_label="cross-entropy",
        log_y=True,
    )
    (out / "loss.svg").write_text(chart)
    print(f"{reached:.1%} of {HELD_OUT} held-out digits named rightly", end="")
    print(f" after {len(losses)} steps, {time.perf_counter() - begin:.1f} s in all")
    print(f"one batch beside one process: gradients differ by at most {difference:.2g}")
    print(f"left in {out}/: trace.json (open it in Perfetto), graph.svg, loss.svg")
    if difference > 1e-5 or (reached < GOAL and epochs >= EPOCHS):
        print(f"expected at least {GOAL:.0%} and a difference of at most 1e-5")
        return 1
    if reached < GOAL:
        print(f"{GOAL:.0%} takes more epochs than {epochs}: leave --epochs out for {EPOCHS}")
    return 0


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--epochs",
        type=int,
        default=EPOCHS,
        help=f"passes over the data (default: {EPOCHS}, which reach {GOAL:.0%}%)",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("build/demo"), help="where files go (default: build/demo)"
    )


DEMO = Command(
    "demo",
    "train a digit classifier whose layers live on three workers",
    _configure,
    lambda arguments: main(arguments.epochs, arguments.out),
)
