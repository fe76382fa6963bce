"""Training models beside PyTorch: `python -m benchmarks models`.

The same modules, the same first values, the same data, float32. A step is forward, loss and
backward; gradients are set to None in between. Optimisers are measured alone, beside PyTorch's
defaults and beside the fastest option that PyTorch has for each.
"""

import numpy as np
import torch

import telegrad as tg
from benchmarks import transformer
from benchmarks.tables import Table
from telegrad import nn, optim

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


def convolutional(table, size, batch, scale):
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
    table.measure(name, sides, rounds=30 // scale, goal=0.5)


def transformer_layer(table, scale):
    """A transformer layer: features 128, 4 heads, sequence 64, batch 8."""
    shape = (transformer.BATCH, transformer.LENGTH, transformer.FEATURES)
    data = np.random.default_rng(0).standard_normal(shape, np.float32)
    sides, models = {}, []
    for side, (lib, _, tensor) in LIBRARIES.items():
        model = transformer.layer(lib)
        models.append(model)
        x = tensor(data)

        def run(model=model, x=x):
            y = transformer.run_layer(model, x)
            (y * y).mean().backward()
            model.zero_grad()

        sides[side] = run
    same_state(*models)
    table.measure("transformer layer, 8 × 64 × 128, step", sides, rounds=150 // scale, goal=1.0)


PARTS = {
    "attention with its two linear maps": ("attention", transformer.FEATURES),
    "layer norm": ("norm1", transformer.FEATURES),
    "linear map 128 → 512": ("widen", transformer.FEATURES),
    "GELU of 512 features": ("bend", 4 * transformer.FEATURES),
}
"""Parts of the transformer layer: their names there, and the features that they take."""


def transformer_parts(table, scale):
    """Where the layer's time goes: each part alone, forward and backward."""
    for title, (name, features) in PARTS.items():
        shape = (transformer.BATCH, transformer.LENGTH, features)
        data = np.random.default_rng(0).standard_normal(shape, np.float32)
        sides, models = {}, []
        for side, (lib, _, tensor) in LIBRARIES.items():
            part = transformer.layer(lib)[name]
            models.append(part)
            x = tensor(data)
            x.requires_grad_()
            out = call_part(part, x)
            direction = tensor(np.ones(tuple(out.shape), np.float32))

            def run(part=part, x=x, direction=direction):
                call_part(part, x).backward(direction)
                part.zero_grad()
                x.grad = None

            sides[side] = run
        same_state(*models)
        table.measure(f"of that: {title}", sides, rounds=60 // scale, repeat=3)


def call_part(part, x):
    """The part's value; attention is of the input to itself."""
    if type(part).__name__ == "MultiheadAttention":
        return part(x, x, x, need_weights=False)[0]
    return part(x)


def recurrent(table, scale):
    """A GRU: features 64, units 128, sequence 32, batch 16."""
    data = np.random.default_rng(0).standard_normal((32, 16, 64), np.float32)
    sides, models = {}, []
    for side, (lib, _, tensor) in LIBRARIES.items():
        model = lib.GRU(64, 128)
        models.append(model)
        x = tensor(data)
        sides[side] = training_step(model, x, lambda out: (out[0] * out[0]).mean())
    same_state(*models)
    table.measure("GRU 64 → 128, 32 × 16, step", sides, rounds=60 // scale, goal=1.5)


OPTIMISERS = {
    "SGD": ("SGD", {"lr": 1e-3}, {"fused": True}),
    "SGD with momentum": ("SGD", {"lr": 1e-3, "momentum": 0.9}, {"fused": True}),
    "Adam": ("Adam", {}, {"fused": True}),
    "AdamW": ("AdamW", {}, {"fused": True}),
    "Adagrad": ("Adagrad", {}, {"fused": True}),
    "RMSprop": ("RMSprop", {}, {"foreach": True}),
}
"""The class, its options, and PyTorch's fastest one for it: no fused RMSprop exists."""
FASTEST = "PyTorch, fused or foreach"


def optimisers(table, scale):
    """One step over a million numbers in a hundred tensors."""
    rng = np.random.default_rng(0)
    values = [rng.standard_normal((100, 100), np.float32) for _ in range(100)]
    for name, (kind, options, fastest) in OPTIMISERS.items():
        sides = {}
        for side, (lib, library, tensor), more in (
            ("telegrad", LIBRARIES["telegrad"], {}),
            ("PyTorch", LIBRARIES["PyTorch"], {}),
            (FASTEST, LIBRARIES["PyTorch"], fastest),
        ):
            parameters = [lib.Parameter(tensor(value)) for value in values]
            for p, value in zip(parameters, values):
                p.grad = tensor(value * np.float32(0.01))
            sides[side] = getattr(library, kind)(parameters, **options, **more).step
        work = f"{name}, 10⁶ numbers in 100 tensors"
        table.measure(work, sides, rounds=60 // scale, goal=1.0)


def measure(quick: bool) -> list[Table]:
    """All of it, as one table."""
    torch.set_num_threads(1)
    scale = 15 if quick else 1
    table = Table("models", peers=("PyTorch", FASTEST))
    print(table.header(), flush=True)
    convolutional(table, 28, 32, scale)
    convolutional(table, 8, 64, scale)
    transformer_layer(table, scale)
    transformer_parts(table, scale)
    recurrent(table, scale)
    optimisers(table, scale)
    return [table]
