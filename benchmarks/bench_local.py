"""The local half beside PyTorch and HIPS autograd: `python -m benchmarks local`.

Single precision, one thread for all. A step is forward and backward; gradients are set to None in
between. HIPS autograd has no tensors: it differentiates functions of plain arrays.
"""

import autograd.numpy as anp
import numpy as np
import torch

import autograd as hips
import telegrad as tg
from benchmarks.local_higher_order import of_attention, of_the_mlp
from benchmarks.local_processes import import_time, memory
from benchmarks.networks import attend, attention_data, network, weights
from benchmarks.tables import Table

__all__ = ["measure"]

PEERS = ("PyTorch", "HIPS autograd")
SIDES = ("telegrad", *PEERS)


def goals(beside_torch: float | None = None) -> dict[str, float]:
    """Beside HIPS autograd the goal is always to be faster."""
    wanted = {"PyTorch / telegrad": beside_torch} if beside_torch else {}
    return {**wanted, "HIPS autograd / telegrad": 1.0}


def backward_of(function, x, *rest):
    """Forward and backward of a function's sum, for a tensor that requires grad."""

    def run():
        function(x, *rest).sum().backward()
        x.grad = None

    return run


def leaves(start):
    """The same leaf for both libraries of tensors."""
    return tg.tensor(start, requires_grad=True), torch.tensor(start, requires_grad=True)


def scalars(x):
    """1000 operations with numbers."""
    for _ in range(500):
        x = x * 1.0001
        x = x + 0.001
    return x


def mixed(x, shift, sin, tanh):
    """1000 operations with numbers and tensors, some of them not linear."""
    for _ in range(200):
        x = x * 1.01
        x = x + shift
        x = sin(x)
        x = x * shift
        x = tanh(x)
    return x


def wide(x):
    """1000 branches of one value, summed two by two: 1999 operations."""
    level = [x * 1.001 for _ in range(1000)]
    while len(level) > 1:
        level = [a + b for a, b in zip(level[::2], level[1::2])] + level[len(level) // 2 * 2 :]
    return level[0]


def small_operations(table, scale):
    """Chains and a tree of operations on 8 numbers."""
    start = np.linspace(0.5, 1.5, 8, dtype=np.float32)
    shift = np.full(8, 0.01, np.float32)
    x, tx = leaves(start)
    hip = {
        scalars: hips.grad(lambda x: anp.sum(scalars(x))),
        mixed: hips.grad(lambda x: anp.sum(mixed(x, shift, anp.sin, anp.tanh))),
        wide: hips.grad(lambda x: anp.sum(wide(x))),
    }
    for work, function, rest, torch_rest in (
        ("chain of 1000 small ops (× and + numbers)", scalars, (), ()),
        (
            "chain of 1000 small ops (numbers, tensors, sin, tanh)",
            mixed,
            (tg.tensor(shift), tg.sin, tg.tanh),
            (torch.tensor(shift), torch.sin, torch.tanh),
        ),
        ("wide tree of 2000 ops", wide, (), ()),
    ):
        sides = (
            backward_of(function, x, *rest),
            backward_of(function, tx, *torch_rest),
            lambda function=function: hip[function](start),
        )
        table.measure(work, dict(zip(SIDES, sides)), rounds=30 // scale, goal=goals(2.5))


def mlp(table, layers, width, batch, rounds, goal):
    """One training step's gradients."""
    pairs, data = weights(layers, width, batch)
    ours = [tuple(tg.tensor(p, requires_grad=True) for p in pair) for pair in pairs]
    theirs = [tuple(torch.tensor(p, requires_grad=True) for p in pair) for pair in pairs]

    def step(params, x, tanh):
        def run():
            h = network(params, x, tanh)
            (h * h).mean().backward()
            for pair in params:
                for p in pair:
                    p.grad = None

        return run

    def loss(pairs):
        h = network(pairs, data, anp.tanh)
        return anp.mean(h * h)

    hip = hips.grad(loss)
    sides = (
        step(ours, tg.tensor(data), tg.tanh),
        step(theirs, torch.tensor(data), torch.tanh),
        lambda: hip(pairs),
    )
    work = f"MLP {layers} × {width}, batch {batch}, step"
    table.measure(work, dict(zip(SIDES, sides)), rounds=rounds, goal=goals(goal))


def attention(table, scale):
    """A block of self-attention: 4 × 32 × 64."""
    data, mats = attention_data()
    ours = [tg.tensor(m, requires_grad=True) for m in mats]
    theirs = [torch.tensor(m, requires_grad=True) for m in mats]

    def step(params, x, softmax):
        def run():
            out = attend(x, *params, softmax, 0.125)
            (out * out).mean().backward()
            for p in params:
                p.grad = None

        return run

    def loss(mats):
        q, k, v = (data @ m for m in mats)
        z = q @ anp.swapaxes(k, -1, -2) * np.float32(0.125)
        e = anp.exp(z - anp.max(z, axis=-1, keepdims=True))
        out = (e / anp.sum(e, axis=-1, keepdims=True)) @ v
        return anp.mean(out * out)

    hip = hips.grad(loss)
    sides = (
        step(ours, tg.tensor(data), lambda z: tg.softmax(z, axis=-1)),
        step(theirs, torch.tensor(data), lambda z: torch.softmax(z, dim=-1)),
        lambda: hip(mats),
    )
    work = "attention block 4 × 32 × 64, step"
    table.measure(work, dict(zip(SIDES, sides)), rounds=40 // scale, goal=goals())


def measure(quick: bool) -> list[Table]:
    """All of it, as three tables: times, import, memory."""
    torch.set_num_threads(1)
    scale = 10 if quick else 1
    table = Table("local", peers=PEERS)
    print(table.header(), flush=True)
    small_operations(table, scale)
    mlp(table, 8, 64, 32, 60 // scale, 2.2)
    mlp(table, 2, 1024, 256, 1 if quick else 12, 1.05)
    attention(table, scale)
    of_the_mlp(table, scale)
    of_attention(table, scale)
    return [table, import_time(1 if quick else 5), memory()]
