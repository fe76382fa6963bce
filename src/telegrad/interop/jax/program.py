"""A function of JAX with its derivatives, which are programs in turn, so that there is any order.

A program takes *reals*, the floating and complex arrays that may be differentiated, and *others*,
and returns a tree of arrays. Its pullback for some of the reals is a program of (reals,
cotangents); its pushforward is one of (reals, tangents). All are compiled, and made once.

First order needs no second run of the function: ``run_recorded`` returns residuals along with the
results, and ``pull`` takes them. Pure JAX: nothing here knows a Tensor.

Gradients of complex numbers follow PyTorch's convention, J^H g; JAX's own are conjugated.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
from jax import numpy as jnp
from jax import tree_util

from telegrad.errors import ShapeError
from telegrad.interop.jax.arrays import is_inexact

Places: TypeAlias = tuple[int, ...]
"""Some of the reals, by their numbers."""


class Program:
    """A pure function ``f(reals, others)`` of two sequences of arrays, and its derivatives."""

    def __init__(self, name: str, count: int, f: Callable[[Any, Any], Any]) -> None:
        self.name = name
        self.count = count
        """How many reals there are."""
        self._f = f
        self._pullbacks: dict[Places, Program] = {}
        self._pushforwards: dict[Places, Program] = {}
        self.run = jax.jit(f)
        """``run(reals, others)`` gives the results."""
        self.run_recorded = jax.jit(self._recorded, static_argnums=0)
        """``run_recorded(wanted, reals, others)`` gives the results and the residuals."""
        self.pull = jax.jit(_pulled)
        """``pull(residuals, cotangents)`` gives the gradients of the wanted reals."""

    def pullback(self, wanted: Places, cotangents: int) -> "Program":
        """Return the program of reals and `cotangents` that gives the wanted gradients."""
        found = self._pullbacks.get(wanted)
        if found is None:

            def pulled(values: Sequence[Any], others: Any) -> Any:
                results, residuals = self._recorded(wanted, values[: self.count], others)
                self._check_same(results, values[self.count :])
                return _pulled(residuals, tuple(values[self.count :]))

            # If two threads come at the same time, one of them works in vain.
            made = Program(f"{self.name}_vjp", self.count + cotangents, pulled)
            found = self._pullbacks.setdefault(wanted, made)
        return found

    def pushforward(self, given: Places) -> "Program":
        """Return the program of reals, and tangents of those `given`, that pushes the tangents."""
        found = self._pushforwards.get(given)
        if found is None:

            def pushed(values: Sequence[Any], others: Any) -> Any:
                reals, tangents = values[: self.count], tuple(values[self.count :])
                primals = tuple(reals[place] for place in given)
                part = self._part(given, reals, others)
                return jax.jvp(lambda *chosen: part(*chosen)[0], primals, tangents)[1]

            made = Program(f"{self.name}_jvp", self.count + len(given), pushed)
            found = self._pushforwards.setdefault(given, made)
        return found

    def _check_same(self, results: Any, cotangents: Sequence[Any]) -> None:
        """Raise if f, traced once more for its adjoint, returns other shapes than before."""
        now = [each.shape for each in tree_util.tree_leaves(results) if is_inexact(each)]
        before = [each.shape for each in cotangents]
        if now != before:
            raise ShapeError(
                f"expected results of shapes {before} from {self.name}, as when it was called, got "
                f"{now} when its derivative was traced: what steers its shapes changed in between; "
                "give that as static_argnames instead of keeping it outside of the function"
            )

    def _recorded(self, wanted: Places, reals: Sequence[Any], others: Any) -> Any:
        part = self._part(wanted, reals, others)
        _, residuals, results = jax.vjp(part, *(reals[place] for place in wanted), has_aux=True)
        return results, residuals

    def _part(self, places: Places, reals: Sequence[Any], others: Any) -> Callable[..., Any]:
        """Return f as a function of some reals, with its inexact results and the tree of all."""

        def part(*chosen: Any) -> Any:
            values = list(reals)
            for place, value in zip(places, chosen, strict=True):
                values[place] = value
            results = self._f(values, others)
            return tuple(
                each for each in tree_util.tree_leaves(results) if is_inexact(each)
            ), results

        return part


def _pulled(residuals: Any, cotangents: tuple[Any, ...]) -> Any:
    return tuple(map(_conjugate, residuals(tuple(map(_conjugate, cotangents)))))


def _conjugate(array: Any) -> Any:
    return jnp.conj(array) if jnp.iscomplexobj(array) else array
