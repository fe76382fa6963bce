"""Programs over the primitives that run the same under telegrad and under PyTorch.

A program starts from two real vectors. Each step is a sample of some primitive: its floating inputs
are the sample's, moved a little by values that the program has computed before, so they stay where
the primitive is defined and yet depend on everything. What a step gives is made real and kept; the
program's result is a vector of all that it computed.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from tests.rules.samples import SAMPLES
from tests.rules.samples.sample import Sample
from tests.rules.table import TABLE

__all__ = ["CASES", "STARTS", "Case", "Library", "Step", "run"]

STARTS = (np.array([0.3, -0.8, 1.1]), np.array([-0.4, 0.6]))
"""What every program is a function of."""

_REACH = 0.03
"""How far a value may move an input; samples keep further than this from poles."""


class Case(NamedTuple):
    """One sample of one primitive, shown as ``sin[plain]``."""

    name: str
    sample: Sample

    def __repr__(self) -> str:
        return f"{self.name}[{self.sample.label}]"


class Step(NamedTuple):
    """A case, and which earlier values move its inputs (counted round)."""

    case: Case
    sources: tuple[int, ...]


CASES = [
    Case(name, each)
    for name, entry in SAMPLES.items()
    if name in TABLE and not entry.no_torch
    for each in entry.samples
    if "torch" not in each.without
]


class Library(NamedTuple):
    """What a program needs of a library beside the primitives."""

    xp: Any
    """The module that ``prepare`` and ``finish`` get."""
    constant: Callable[[Any], Any]
    call: Callable[[Case, Sequence[Any]], Any]
    tanh: Callable[[Any], Any]
    flat: Callable[[Any], Any]
    shaped: Callable[[Any, tuple[int, ...]], Any]
    picked: Callable[[Any, Any], Any]
    """Elements of a vector by an array of places."""
    join: Callable[[list[Any]], Any]
    parts: Callable[[Any], tuple[Any, Any]]
    """The real and the imaginary part."""
    to_float64: Callable[[Any], Any]


def run(steps: Sequence[Step], starts: Sequence[Any], library: Library) -> Any:
    """The result of the program as one real vector."""
    values = list(starts)
    for step in steps:
        values.extend(_results(step, values, library))
    return library.join([library.tanh(library.flat(value)) for value in values])


def _results(step: Step, values: list[Any], library: Library) -> list[Any]:
    case = step.case
    primitive = TABLE[case.name]
    inputs = []
    for i, array in enumerate(case.sample.inputs()):
        made = library.constant(array)
        if primitive.vjp[i] is not None and array.dtype.kind in "fc":
            source = values[step.sources[i % len(step.sources)] % len(values)]
            made = made + _moved(source, array, library)
        inputs.append(made)
    if case.sample.prepare is not None:
        inputs = list(case.sample.prepare(library.xp, *inputs))
    result = library.call(case, inputs)
    results = _listed(result)
    if case.sample.finish is not None:
        results = _listed(case.sample.finish(library.xp, *results))
    return [_as_real(each, library) for each in results if _carries_derivative(each)]


def _listed(result: Any) -> Sequence[Any]:
    return result if isinstance(result, (tuple, list)) else (result,)


def _moved(value: Any, like: Any, library: Library) -> Any:
    """A small real or complex array of the shape of `like` that depends on the value."""
    flat = library.flat(value)
    size, count = flat.shape[0], int(np.prod(like.shape, dtype=int))
    if not size:
        return library.constant(np.zeros(like.shape, dtype=like.dtype))
    places = np.arange(count) % size
    small = library.tanh(library.picked(flat, places)) * _REACH
    if like.dtype.kind == "c":
        small = small + library.tanh(library.picked(flat, places[::-1].copy())) * (_REACH * 1j)
    return library.shaped(small, like.shape)


def _carries_derivative(value: Any) -> bool:
    return "float" in str(value.dtype) or "complex" in str(value.dtype)


def _as_real(value: Any, library: Library) -> Any:
    if "complex" in str(value.dtype):
        real, imaginary = library.parts(value)
        return library.to_float64(real + imaginary * 2.0)
    return library.to_float64(value)
