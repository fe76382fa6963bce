"""The fast path of most calls: NumPy's arrays, no tangents, nothing packed.

It does what ``operation.py`` does with a Function, in a third of the time: the node holds the raw
arrays and the residuals, and a pass that is not recorded uses them as they are.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import tree_util

from telegrad.engine.task import freed_error
from telegrad.graph import Bundle, Cotangent
from telegrad.interop.jax.arrays import from_jax_array, refuse_narrowing
from telegrad.interop.jax.program import Places, Program
from telegrad.tensors import Tensor, history_of, wrap
from telegrad.tensors.recording.call_node import CallNode
from telegrad.tensors.recording.modes import Mode


def is_plain(reals: Sequence[Tensor], mode: Mode) -> bool:
    """Say whether a call may take the fast path."""
    if mode.pack is not None or mode.anomaly:
        return False
    return all(type(each.array) is np.ndarray and not each.tangents for each in reals)


def run_plainly(
    program: Program, wanted: Places, reals: Sequence[Tensor], others: Sequence[Any], general: Any
) -> Any:
    """Run a program, recorded if some reals are wanted; return the tree of its results.

    `general` runs a pullback that is itself differentiated, which the node can't.
    """
    arrays = [each.array for each in reals]
    for array in arrays:
        refuse_narrowing(array.dtype, array)
    if not wanted:
        return tree_util.tree_map(from_jax_array, program.run(arrays, others))
    results, residuals = program.run_recorded(wanted, arrays, others)
    leaves, structure = tree_util.tree_flatten(results)
    made = [from_jax_array(leaf) for leaf in leaves]
    edges = tuple(history_of(reals[place]) for place in wanted)
    node = ProgramNode(program, wanted, others, arrays, edges, residuals, general)
    node.outputs = tuple(
        (each.shape, each.dtype) if isinstance(each, Tensor) and each.dtype.kind in "fc" else None
        for each in made
    )
    for index, output in enumerate(node.outputs):
        if output is not None:
            made[index].node = node.of_output(index)
    return tree_util.tree_unflatten(structure, made)


class ProgramNode(CallNode):
    """One recorded call of a program; its `outputs` are (shape, dtype)."""

    __slots__ = ("_arrays", "_general", "_others", "_program", "_residuals")

    def __init__(
        self,
        program: Program,
        wanted: Places,
        others: Sequence[Any],
        arrays: Sequence[Any],
        edges: tuple[Any, ...],
        residuals: Any,
        general: Any,
    ) -> None:
        super().__init__(edges, wanted)
        self._program = program
        self._others = others
        self._arrays: Sequence[Any] | None = arrays
        self._residuals = residuals
        self._general = general

    def name(self) -> str:
        return f"{self._program.name}Backward"

    def inputs_shown(self) -> Sequence[int]:
        return range(self._program.count)

    def release(self) -> None:
        self.freed = True  # First: a pass of another thread may be reading them.
        self._arrays = self._residuals = None

    def pull(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        parts = cotangent if type(cotangent) is Bundle else (cotangent,)
        if any(isinstance(part, Tensor) for part in parts):
            found = self.pull_recorded(cotangent)
            return [g if g.is_dual else g.array for g in found]
        residuals = self._residuals
        if residuals is None:
            raise freed_error(self)
        given = []
        for part, output in zip(parts, self.outputs, strict=True):
            if output is not None:
                array = np.zeros(*output) if part is None else part
                refuse_narrowing(array.dtype, array)
                given.append(array)
        return [np.asarray(each) for each in self._program.pull(residuals, tuple(given))]

    def pull_recorded(self, cotangent: Cotangent) -> Sequence[Any]:
        parts = cotangent if type(cotangent) is Bundle else (cotangent,)
        arrays = self._arrays
        if arrays is None:
            raise freed_error(self)
        values = [wrap(array) for array in arrays]
        edges: Sequence[Any] = self.edges
        for place, edge in zip(self.wanted, edges, strict=True):
            is_leaf_itself = edge.is_leaf and edge.array is arrays[place]
            values[place] = edge if is_leaf_itself else wrap(arrays[place], edge)
        count = 0
        for part, output in zip(parts, self.outputs, strict=True):
            if output is not None:
                given = wrap(np.zeros(*output)) if part is None else part
                values.append(given if isinstance(given, Tensor) else wrap(given))
                count += 1
        pullback = self._program.pullback(self.wanted, count)
        found: Sequence[Any] = self._general(pullback, values, self._others)
        return found
