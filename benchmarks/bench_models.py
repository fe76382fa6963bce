"""Training models beside PyTorch: the same modules, the same data, float32, one BLAS thread.

Run by ``make bench``, or alone: ``python -m benchmarks.bench_models``. Each step is forward, loss,
backward and, where the row says so, the optimiser; gradients are set to None in between.
"""

import numpy as np
import torch

import telegrad as tg
from benchmarks.measuring import Table
from telegrad import nn, optim

SIDES = ("telegrad", "PyTorch")
LIBRARIES = {"telegrad": (nn, optim, tg.tensor), "PyTorch": (torch.nn, torch.optim, torch.tensor)}


def same_state(ours, theirs):
    """Both modules with PyTorch's first values."""
    ours.load_state_dict({name: value.numpy() for name, value in theirs.state_dict().items()})


def training_step(model, x, loss_of):
    """Forward, loss and backward."""

    def run():
        loss_of(model(x)).backward()
        model.zero_grad()

    return run


def cnn(lib):
    return lib.Sequential(
        lib.Conv2d(1, 16, 3, padding=1),
        lib.ReLU(),
        lib.MaxPool2d(2),
        lib.Conv2d(16, 32, 3, padding=1),
        lib.ReLU(),
        lib.MaxPool2d(2),
    )


def convolutional(table, size, batch, rounds):
    """A small CNN on square images, cross entropy of 10 classes."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((batch, 1, size, size), np.float32)
    labels = rng.integers(0, 10, batch)
    width = 32 * (size // 4) ** 2
    sides, models = {}, []
    for side, (lib, _, tensor) in LIBRARIES.items():
        body, head = cnn(lib), lib.Linear(width, 10)
        model = lib.ModuleDict({"body": body, "head": head})
        models.append(model)
        x, y, loss = tensor(images), tensor(labels), lib.CrossEntropyLoss()

        def run(model=model, x=x, y=y, loss=loss, batch=batch):
            features = model["body"](x).reshape(batch, -1)
            loss(model["head"](features), y).backward()
            model.zero_grad()

        sides[side] = run
    same_state(*models)
    name = f"CNN, {batch} images of {size} × {size}, step"
    table.add(name, sides, rounds=rounds, goal=0.5)


def transformer_layer(lib):
    """The parts of a layer: attention and two linear maps, each after a normalisation."""
    return lib.ModuleDict(
        {
            "norm1": lib.LayerNorm(128),
            "attention": lib.MultiheadAttention(128, 4, batch_first=True),
            "norm2": lib.LayerNorm(128),
            "widen": lib.Linear(128, 512),
            "bend": lib.GELU(),
            "narrow": lib.Linear(512, 128),
        }
    )


def transformer(table):
    """A transformer layer: features 128, 4 heads, sequence 64, batch 8."""
    data = np.random.default_rng(0).standard_normal((8, 64, 128), np.float32)
    sides, models = {}, []
    for side, (lib, _, tensor) in LIBRARIES.items():
        model = transformer_layer(lib)
        models.append(model)
        x = tensor(data)

        def run(model=model, x=x):
            h = model["norm1"](x)
            x = x + model["attention"](h, h, h, need_weights=False)[0]
            h = model["bend"](model["widen"](model["norm2"](x)))
            y = x + model["narrow"](h)
            (y * y).mean().backward()
            model.zero_grad()

        sides[side] = run
    same_state(*models)
    table.add("transformer layer, 8 × 64 × 128, step", sides, rounds=60, goal=1.0)


def recurrent(table):
    """A GRU: features 64, units 128, sequence 32, batch 16."""
    data = np.random.default_rng(0).standard_normal((32, 16, 64), np.float32)
    sides, models = {}, []
    for side, (lib, _, tensor) in LIBRARIES.items():
        model = lib.GRU(64, 128)
        models.append(model)
        x = tensor(data)
        sides[side] = training_step(model, x, lambda out: (out[0] * out[0]).mean())
    same_state(*models)
    table.add("GRU 64 → 128, 32 × 16, step", sides, rounds=60, goal=1.5)


OPTIMISERS = {
    "SGD": ("SGD", {"lr": 1e-3}),
    "SGD with momentum": ("SGD", {"lr": 1e-3, "momentum": 0.9}),
    "Adam": ("Adam", {}),
    "AdamW": ("AdamW", {}),
    "Adagrad": ("Adagrad", {}),
    "RMSprop": ("RMSprop", {}),
}


def optimisers(table):
    """One step over a million numbers in a hundred tensors."""
    rng = np.random.default_rng(0)
    values = [rng.standard_normal((100, 100), np.float32) for _ in range(100)]
    for name, (kind, options) in OPTIMISERS.items():
        sides = {}
        for side, (lib, library, tensor) in LIBRARIES.items():
            parameters = [lib.Parameter(tensor(value)) for value in values]
            for p, value in zip(parameters, values):
                p.grad = tensor(value * np.float32(0.01))
            sides[side] = getattr(library, kind)(parameters, **options).step
        table.add(f"{name}, 10⁶ numbers in 100 tensors", sides, rounds=60, goal=1.0)


def main() -> None:
    torch.set_num_threads(1)
    table = Table("models", SIDES)
    print(table.header())
    convolutional(table, 28, 32, 30)
    convolutional(table, 8, 64, 40)
    transformer(table)
    recurrent(table)
    optimisers(table)
    print(f"written: {table.save()}")


if __name__ == "__main__":
    main()
