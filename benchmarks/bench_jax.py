"""Functions of JAX over workers, beside JAX alone: `python -m benchmarks jax`.

A call and its backward pass for all arguments: on another worker, in this process, and as JAX does
it, compiled as one function. The bytes that JAX's own program never has to move, and the context
that keeps the gradients, are part of it. The goal is a bound on what the remote step takes. Where
Tesseract is installed, the same function in its local mode, which stays in this process, is beside
it; it has first order only.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import telegrad as tg
from benchmarks.goals import Goal
from benchmarks.jax_work import ARGUMENTS, FUNCTIONS
from benchmarks.tables import Table
from benchmarks.tesseract_work import MISSING, tesseract_of
from telegrad.autograd import functional
from telegrad.distributed import LocalCluster, autograd, rpc

__all__ = ["measure"]

REMOTE, HERE, PEER = "telegrad, another worker", "telegrad, here", "JAX"
TESSERACT = "Tesseract, here"
GOAL = 500.0
"""Microseconds for a remote call and its backward pass."""


def first_order(f: Callable[..., Any], arrays: Any) -> dict[str, Callable[[], Any]]:
    """Give each side's gradients of all arguments."""
    tensors = [tg.tensor(a, requires_grad=True) for a in arrays]
    compiled = jax.jit(jax.value_and_grad(f.__wrapped__, argnums=tuple(range(len(arrays)))))
    given = [jax.numpy.asarray(a) for a in arrays]

    def remote() -> Any:
        with autograd.context() as context_id:
            y = rpc.rpc_sync("worker", f, tensors)
            autograd.backward(context_id, [y])
            found = autograd.get_gradients(context_id)
            return [found[x] for x in tensors]

    sides: dict[str, Callable[[], Any]] = {
        REMOTE: remote,
        HERE: lambda: tg.autograd.grad(f(*tensors), tensors),
        PEER: lambda: jax.block_until_ready(compiled(*given))[1],
    }
    if not MISSING:
        served = tesseract_of(f.__wrapped__, arrays)
        pulled = jax.jit(jax.value_and_grad(served, argnums=tuple(range(len(arrays)))))
        sides[TESSERACT] = lambda: jax.block_until_ready(pulled(*given))[1]
    return sides


def second_order(f: Callable[..., Any], arrays: Any) -> dict[str, Callable[[], Any]]:
    """Give each side's Hessian-vector product by the first argument, forward over reverse."""
    tensors = [tg.tensor(a) for a in arrays]
    x, v = tensors[0], tg.ones_like(tensors[0])
    rest = [jax.numpy.asarray(a) for a in arrays[1:]]
    primal, tangent = jax.numpy.asarray(arrays[0]), jax.numpy.ones_like(arrays[0])

    @jax.jit
    def compiled(x: Any, v: Any) -> Any:
        return jax.jvp(jax.grad(lambda x: f.__wrapped__(x, *rest)), (x,), (v,))[1]

    def remote() -> Any:
        def call(x: Any) -> Any:
            return rpc.rpc_sync("worker", f, (x, *tensors[1:]))

        with autograd.context():
            return [functional.hvp(call, x, v)[1]]

    return {
        REMOTE: remote,
        HERE: lambda: [functional.hvp(lambda x: f(x, *tensors[1:]), x, v)[1]],
        PEER: lambda: [jax.block_until_ready(compiled(primal, tangent))],
    }


def refuse_other_numbers(sides: dict[str, Callable[[], Any]]) -> None:
    """Raise unless all sides compute the same."""
    expected = [np.asarray(each) for each in sides[PEER]()]
    for side, run in sides.items():
        for mine, theirs in zip(run(), expected, strict=True):
            array = mine.detach().numpy() if isinstance(mine, tg.Tensor) else np.asarray(mine)
            np.testing.assert_allclose(array, theirs, rtol=1e-3, atol=1e-4, err_msg=side)


def measure(quick: bool) -> list[Table]:
    """All of it, as one table."""
    if MISSING:
        print(MISSING, flush=True)
    table = Table("jax", (REMOTE, HERE), (PEER,) if MISSING else (PEER, TESSERACT))
    print(table.header(), flush=True)
    rounds, repeat = (3, 5) if quick else (60, 20)
    with LocalCluster(["worker"]):
        for work, f in FUNCTIONS.items():
            sides = first_order(f, ARGUMENTS[work])
            refuse_other_numbers(sides)
            name = f"{work}: call and backward"
            row = table.measure(name, sides, rounds=rounds, repeat=repeat)
            reached = row.minima[REMOTE] * 1e6
            table.goals.append(Goal(f"{name}, {REMOTE}", GOAL, reached, at_most=True, unit=" µs"))
        for work, f in FUNCTIONS.items():
            sides = second_order(f, ARGUMENTS[work])
            refuse_other_numbers(sides)
            name = f"{work}: Hessian-vector product"
            table.measure(name, sides, rounds=max(3, rounds // 4), repeat=repeat)
    return [table]
