"""The local half beside PyTorch and HIPS autograd: one BLAS thread for all, float32.

Run by ``make bench``, or alone: ``python -m benchmarks.bench_local``.
"""

import json
import subprocess
import sys

import autograd.numpy as anp
import numpy as np
import torch

import autograd as hips
import telegrad as tg
from benchmarks.measuring import Table
from telegrad.autograd import functional

SIDES = ("telegrad", "PyTorch", "HIPS autograd")


def chain(table: Table) -> None:
    """1000 small operations in a row, forward and backward."""
    start = np.linspace(0.5, 1.5, 8, dtype=np.float32)
    shift = np.full(8, 0.01, np.float32)

    def scalars(x):
        for _ in range(500):
            x = x * 1.0001
            x = x + 0.001
        return x

    def mixed(x, shift, sin, tanh):
        for _ in range(200):
            x = x * 1.01
            x = x + shift
            x = sin(x)
            x = x * shift
            x = tanh(x)
        return x

    x, s = tg.tensor(start, requires_grad=True), tg.tensor(shift)
    tx, ts = torch.tensor(start, requires_grad=True), torch.tensor(shift)

    def ours(function, *rest):
        def run():
            function(x, *rest).sum().backward()
            x.grad = None

        return run

    def torchs(function, *rest):
        def run():
            function(tx, *rest).sum().backward()
            tx.grad = None

        return run

    for work, sides in (
        (
            "chain of 1000 small ops (× and + numbers)",
            (
                ours(scalars),
                torchs(scalars),
                lambda: hips.grad(lambda x: anp.sum(scalars(x)))(start),
            ),
        ),
        (
            "chain of 1000 small ops (numbers, tensors, sin, tanh)",
            (
                ours(mixed, s, tg.sin, tg.tanh),
                torchs(mixed, ts, torch.sin, torch.tanh),
                lambda: hips.grad(lambda x: anp.sum(mixed(x, shift, anp.sin, anp.tanh)))(start),
            ),
        ),
    ):
        table.add(work, dict(zip(SIDES, sides)), rounds=30, goal=2.5)


def tree(table: Table) -> None:
    """2000 branches of one value, summed two by two."""
    start = np.linspace(0.5, 1.5, 8, dtype=np.float32)

    def wide(x):
        level = [x * 1.001 for _ in range(1000)]
        while len(level) > 1:
            level = [a + b for a, b in zip(level[::2], level[1::2])] + level[len(level) // 2 * 2 :]
        return level[0]

    x, tx = tg.tensor(start, requires_grad=True), torch.tensor(start, requires_grad=True)

    def ours():
        wide(x).sum().backward()
        x.grad = None

    def theirs():
        wide(tx).sum().backward()
        tx.grad = None

    hip = hips.grad(lambda x: anp.sum(wide(x)))
    table.add(
        "wide tree of 2000 ops", dict(zip(SIDES, (ours, theirs, lambda: hip(start)))), goal=2.5
    )


def weights(layers: int, width: int, batch: int):
    rng = np.random.default_rng(0)
    scale = np.float32(1 / np.sqrt(width))
    pairs = [
        (rng.standard_normal((width, width), np.float32) * scale, np.zeros(width, np.float32))
        for _ in range(layers)
    ]
    return pairs, rng.standard_normal((batch, width), np.float32)


def network(pairs, x, tanh):
    for w, b in pairs:
        x = tanh(x @ w + b)
    return x


def mlp(table: Table, layers: int, width: int, batch: int, rounds: int, goal: float) -> None:
    """One training step's gradients."""
    pairs, data = weights(layers, width, batch)
    ours = [tuple(tg.tensor(p, requires_grad=True) for p in pair) for pair in pairs]
    theirs = [tuple(torch.tensor(p, requires_grad=True) for p in pair) for pair in pairs]
    x, tx = tg.tensor(data), torch.tensor(data)

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
    sides = (step(ours, x, tg.tanh), step(theirs, tx, torch.tanh), lambda: hip(pairs))
    table.add(
        f"MLP {layers} × {width}, batch {batch}, step",
        dict(zip(SIDES, sides)),
        rounds=rounds,
        goal=goal,
    )


def attend(x, wq, wk, wv, softmax, scale):
    q, k, v = x @ wq, x @ wk, x @ wv
    return softmax((q @ k.mT) * scale) @ v


def attention(table: Table) -> None:
    """A block of self-attention: 4 × 32 × 64."""
    rng = np.random.default_rng(0)
    data = rng.standard_normal((4, 32, 64), np.float32)
    mats = [rng.standard_normal((64, 64), np.float32) * np.float32(0.125) for _ in range(3)]
    ours = [tg.tensor(m, requires_grad=True) for m in mats]
    theirs = [torch.tensor(m, requires_grad=True) for m in mats]
    x, tx = tg.tensor(data), torch.tensor(data)

    def step(params, x, softmax):
        def run():
            out = attend(x, *params, softmax, 0.125)
            (out * out).mean().backward()
            for p in params:
                p.grad = None

        return run

    def hip_softmax(z):
        e = anp.exp(z - anp.max(z, axis=-1, keepdims=True))
        return e / anp.sum(e, axis=-1, keepdims=True)

    def loss(mats):
        q, k, v = (data @ m for m in mats)
        out = hip_softmax(q @ anp.swapaxes(k, -1, -2) * np.float32(0.125)) @ v
        return anp.mean(out * out)

    hip = hips.grad(loss)
    sides = (
        step(ours, x, lambda z: tg.softmax(z, axis=-1)),
        step(theirs, tx, lambda z: torch.softmax(z, dim=-1)),
        lambda: hip(mats),
    )
    table.add("attention block 4 × 32 × 64, step", dict(zip(SIDES, sides)), rounds=40)


def higher_order(table: Table) -> None:
    """Forward mode and Hessian-vector products of the small MLP, as functions of one weight."""
    pairs, data = weights(8, 64, 32)
    direction = np.ones((64, 64), np.float32)
    ours = [tuple(tg.tensor(p) for p in pair) for pair in pairs]
    theirs = [tuple(torch.tensor(p) for p in pair) for pair in pairs]
    x, tx = tg.tensor(data), torch.tensor(data)
    v, tv = tg.tensor(direction), torch.tensor(direction)

    def loss(params, x, tanh):
        def of(first):
            h = network([(first, params[0][1]), *params[1:]], x, tanh)
            return (h * h).mean()

        return of

    f, tf = loss(ours, x, tg.tanh), loss(theirs, tx, torch.tanh)
    hf = lambda w: anp.mean(network([(w, pairs[0][1]), *pairs[1:]], data, anp.tanh) ** 2)
    w, tw, hw = ours[0][0], theirs[0][0], pairs[0][0]
    hip_hvp = hips.hessian_vector_product(hf)
    hip_jvp = hips.differential_operators.make_jvp(hf)
    table.add(
        "MLP 8 × 64: jvp",
        {
            "telegrad": lambda: functional.jvp(f, (w,), (v,)),
            "PyTorch": lambda: torch.func.jvp(tf, (tw,), (tv,)),
            "HIPS autograd": lambda: hip_jvp(hw)(direction),
        },
        rounds=40,
        notes="PyTorch by torch.func",
    )
    table.add(
        "MLP 8 × 64: the function alone",
        {"telegrad": lambda: f(w), "PyTorch": lambda: tf(tw), "HIPS autograd": lambda: hf(hw)},
        rounds=40,
    )
    table.add(
        "MLP 8 × 64: Hessian-vector product",
        {
            "telegrad": lambda: functional.hvp(f, (w,), (v,)),
            "PyTorch": lambda: torch.func.jvp(torch.func.grad(tf), (tw,), (tv,)),
            "HIPS autograd": lambda: hip_hvp(hw, direction),
        },
        rounds=30,
        goal=1.5,
        notes="forward over reverse; HIPS: reverse over reverse",
    )


def attention_higher_order(table: Table) -> None:
    """The same of the attention block, as functions of the first matrix."""
    rng = np.random.default_rng(0)
    data = rng.standard_normal((4, 32, 64), np.float32)
    mats = [rng.standard_normal((64, 64), np.float32) * np.float32(0.125) for _ in range(3)]
    direction = np.ones((64, 64), np.float32)
    ours, theirs = [tg.tensor(m) for m in mats], [torch.tensor(m) for m in mats]
    x, tx = tg.tensor(data), torch.tensor(data)
    v, tv = tg.tensor(direction), torch.tensor(direction)

    def f(first):
        out = attend(x, first, *ours[1:], lambda z: tg.softmax(z, axis=-1), 0.125)
        return (out * out).mean()

    def tf(first):
        out = attend(tx, first, *theirs[1:], lambda z: torch.softmax(z, dim=-1), 0.125)
        return (out * out).mean()

    def hf(first):
        q, k, u = data @ first, data @ mats[1], data @ mats[2]
        z = q @ anp.swapaxes(k, -1, -2) * np.float32(0.125)
        e = anp.exp(z - anp.max(z, axis=-1, keepdims=True))
        out = (e / anp.sum(e, axis=-1, keepdims=True)) @ u
        return anp.mean(out * out)

    hip_jvp = hips.differential_operators.make_jvp(hf)
    hip_hvp = hips.hessian_vector_product(hf)
    table.add(
        "attention block: jvp",
        {
            "telegrad": lambda: functional.jvp(f, (ours[0],), (v,)),
            "PyTorch": lambda: torch.func.jvp(tf, (theirs[0],), (tv,)),
            "HIPS autograd": lambda: hip_jvp(mats[0])(direction),
        },
        rounds=40,
    )
    table.add(
        "attention block: Hessian-vector product",
        {
            "telegrad": lambda: functional.hvp(f, (ours[0],), (v,)),
            "PyTorch": lambda: torch.func.jvp(torch.func.grad(tf), (theirs[0],), (tv,)),
            "HIPS autograd": lambda: hip_hvp(mats[0], direction),
        },
        rounds=30,
    )


_MEMORY = """
import sys, json
def resident():
    with open("/proc/self/statm") as f: return int(f.read().split()[1]) * 4096
side = sys.argv[1]
if side == "telegrad":
    import telegrad as lib
    x = lib.ones(8); x.requires_grad_()
else:
    import torch as lib
    x = lib.ones(8, requires_grad=True)
y = x * 1.0001
before = resident()
for _ in range(500_000):
    y = y * 1.0001
    y = y + 0.001
grown = resident() - before
y.sum().backward()
print(json.dumps(grown / 1e6))
"""

_IMPORT = """
import time, json, sys
if sys.argv[1] == "telegrad":
    import numpy
    begin = time.perf_counter(); import telegrad
else:
    import numpy
    begin = time.perf_counter(); import torch
print(json.dumps(time.perf_counter() - begin))
"""


def in_process(script: str, side: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", script, side], capture_output=True, text=True, check=True
    )
    return float(json.loads(done.stdout))


def main() -> None:
    torch.set_num_threads(1)
    table = Table("local", SIDES)
    print(table.header())
    chain(table)
    tree(table)
    mlp(table, 8, 64, 32, 60, 2.2)
    mlp(table, 2, 1024, 256, 12, 1.05)
    attention(table)
    higher_order(table)
    attention_higher_order(table)
    for work, script, sides in (
        ("import beyond NumPy, seconds", _IMPORT, ("telegrad", "PyTorch")),
    ):
        found = {side: [in_process(script, side) for _ in range(3)] for side in sides}
        table.add_figures(
            work,
            {side: min(times) for side, times in found.items()},
            {side: sorted(times)[1] for side, times in found.items()},
        )
    print(f"written: {table.save()}")
    memory = Table("memory", ("telegrad", "PyTorch"), unit="MB")
    print(memory.header())
    found = {side: in_process(_MEMORY, side) for side in memory.sides}
    memory.add_figures("resident growth of a chain of 10⁶ ops", found, found, goal=1.0)
    print(f"written: {memory.save()}")


if __name__ == "__main__":
    main()
