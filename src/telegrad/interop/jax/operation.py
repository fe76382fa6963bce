"""A program of JAX as one operation of telegrad, whose rules are programs and run the same way.

1. If nothing is recorded, the program just runs. Otherwise it runs once and returns its residuals,
   too, which stay in JAX, on this worker, until the graph is freed.
2. A backward pass uses the residuals. But one that is itself recorded, or carries tangents, runs
the
   pullback as an operation, which has derivatives of any order in turn.
3. Forward mode runs the pushforward as an operation.

``node.py`` has a fast path for calls without tangents; this module serves all calls.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import tree_util

from telegrad.autograd.function.function import Function, named
from telegrad.interop.jax.arrays import from_jax_array, maker_for, to_jax_value
from telegrad.interop.jax.node import is_plain, run_plainly
from telegrad.interop.jax.program import Places, Program
from telegrad.tensors import Tensor, wrap
from telegrad.tensors.recording.modes import MODE


def run(program: Program, reals: Sequence[Tensor], others: Sequence[Any]) -> Any:
    """Run a program on Tensors, recorded as telegrad's mode says; return the tree of results."""
    mode = MODE.get()
    wanted: Places = ()
    if mode.recording:
        wanted = tuple([i for i, each in enumerate(reals) if each.node is not None])
    if is_plain(reals, mode):
        return run_plainly(program, wanted, reals, others, run)
    work = _Work(program, wanted, others)
    leaves = named(program.name, _Call).apply(work, *reals)
    return tree_util.tree_unflatten(work.structure, leaves)


class _Work:
    """What a call needs besides its Tensors."""

    __slots__ = ("others", "program", "structure", "wanted")

    def __init__(self, program: Program, wanted: Places, others: Sequence[Any]) -> None:
        self.program = program
        self.wanted = wanted
        self.others = others
        self.structure: Any = None
        """How the results, which a Function returns flat, are nested; set when it has run."""


class _Call(Function):
    """One call of a program."""

    @staticmethod
    def forward(ctx: Any, work: _Work, *reals: Tensor) -> Any:
        values = [to_jax_value(each) for each in reals]
        if work.wanted:
            results, residuals = work.program.run_recorded(work.wanted, values, work.others)
            ctx.save_residuals(residuals)
        else:
            results = work.program.run(values, work.others)
        ctx.work = work
        ctx.save_for_backward(*reals)
        ctx.save_for_forward(*reals)
        ctx.set_materialize_grads(False)
        leaves, work.structure = tree_util.tree_flatten(results)
        make = maker_for(reals)
        made = tuple(from_jax_array(each, make) for each in leaves)
        ctx.inexact = [
            (i, each.shape, each.dtype)
            for i, each in enumerate(made)
            if isinstance(each, Tensor) and each.dtype.kind in "fc"
        ]
        ctx.result_count = len(made)
        return made

    @staticmethod
    def backward(ctx: Any, *given: Tensor | None) -> Any:
        reals, residuals, work = ctx.saved_tensors, ctx.residuals, ctx.work
        cotangents = [
            each if (each := given[i]) is not None else wrap(np.zeros(shape, dtype))
            for i, shape, dtype in ctx.inexact
        ]
        values = (*reals, *cotangents)
        if _is_differentiated(values):
            pullback = work.program.pullback(work.wanted, len(cotangents))
            gradients = run(pullback, values, work.others)
        else:
            pulled = work.program.pull(residuals, tuple(map(to_jax_value, cotangents)))
            make = maker_for(values)
            gradients = [from_jax_array(each, make) for each in pulled]
        by_place = dict(zip(work.wanted, gradients, strict=True))
        return None, *(by_place.get(place) for place in range(len(reals)))

    @staticmethod
    def jvp(ctx: Any, _: None, *given: Tensor | None) -> Any:
        reals, work = ctx.saved_tensors, ctx.work
        places = tuple(i for i, each in enumerate(given) if each is not None)
        tangents = [each for each in given if each is not None]
        pushed = iter(run(work.program.pushforward(places), (*reals, *tangents), work.others))
        inexact = {i for i, _, _ in ctx.inexact}
        return tuple(next(pushed) if i in inexact else None for i in range(ctx.result_count))


def _is_differentiated(values: Sequence[Tensor]) -> bool:
    """Say whether a derivative computed from these values may itself be differentiated."""
    is_recording = MODE.get().recording
    return any(each.is_dual or (is_recording and each.node is not None) for each in values)
