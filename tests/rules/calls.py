"""How the tests call a primitive on a sample: as a function of Tensors, by its fast path or not."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from tests.rules.samples import SAMPLES
from tests.rules.samples.sample import Entry, Sample
from tests.rules.table import TABLE

import telegrad
from telegrad.rules import Primitive
from telegrad.tensors import Tensor, apply, wrap
from telegrad.tensors.recording.fast_paths import binary, product, total, unary
from telegrad.tensors.recording.modes import ModeScope

__all__ = [
    "as_function",
    "cases",
    "fast_function",
    "gradients",
    "is_differentiable",
    "numpy_reference",
    "tangents",
]


def cases(check: str) -> list[tuple[str, Sample]]:
    """Every sample that is not excused from the check, as (name of the primitive, sample)."""
    return [
        (name, each)
        for name, entry in SAMPLES.items()
        for each in entry.samples
        if name in TABLE and check not in each.without
        if not (check == "numpy" and entry.no_numpy)
    ]


def is_differentiable(primitive: Primitive, index: int, array: Any) -> bool:
    """Whether input `index` of the primitive carries a derivative."""
    return primitive.vjp[index] is not None and np.dtype(array.dtype).kind in "fc"


def as_function(primitive: Primitive, sample: Sample) -> Callable[..., Any]:
    """The call of a sample on Tensors, with what comes before and after it."""

    def function(*inputs: Tensor) -> Any:
        if sample.prepare is not None:
            inputs = sample.prepare(telegrad, *inputs)
        result = apply(primitive, *inputs, **sample.options)
        if sample.finish is None:
            return result
        return sample.finish(telegrad, *(result if primitive.outputs else (result,)))

    return function


def in_general(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with every shortcut off."""

    def call(*inputs: Tensor) -> Any:
        with ModeScope(check_nan=True):
            return function(*inputs)

    return call


def fast_function(primitive: Primitive, sample: Sample) -> Callable[..., Any] | None:
    """The fast path of a primitive for the options of a sample, or None where it has none."""
    if primitive.name == "matrix_product":
        return product(primitive)
    if primitive.name in ("sum", "mean"):
        return partial(_totalled, primitive, total(primitive), sample.options)
    if (
        not primitive.elementwise
        or not primitive.differentiable
        or primitive.options
        or primitive.outputs
    ):
        return None
    return (
        {1: unary, 2: binary}[len(primitive.inputs)](primitive)
        if len(primitive.inputs) < 3
        else None
    )


def _totalled(primitive: Primitive, fast: Callable[..., Any], options: Any, x: Tensor) -> Any:
    made = fast(x, options["axis"], options["keepdims"])
    return apply(primitive, x, **options) if made is None else made


def numpy_reference(name: str, entry: Entry) -> Callable[..., Any]:
    """NumPy's function for the primitive `name`."""
    found: Any = entry.numpy if entry.numpy is not None else TABLE[name].name
    if not isinstance(found, str):
        return found  # type: ignore[no-any-return]
    reference: Any = np
    for part in found.split("."):
        reference = getattr(reference, part)
    return reference  # type: ignore[no-any-return]


def tuple_of(result: Any) -> tuple[Any, ...]:
    """Results as a tuple, one or several."""
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def leaves(primitive: Primitive, arrays: Sequence[Any]) -> list[Tensor]:
    """The inputs as Tensors; those that carry a derivative require grad."""
    tensors = [wrap(array) for array in arrays]
    return [
        x.requires_grad_() if is_differentiable(primitive, i, x) else x
        for i, x in enumerate(tensors)
    ]


def gradients(
    function: Callable[..., Any], inputs: Sequence[Tensor], cotangents: Sequence[Any], **how: Any
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The results, and the gradients of those inputs that require grad."""
    results = tuple_of(function(*inputs))
    pairs = [(y, wrap(v)) for y, v in zip(results, cotangents) if y.requires_grad]
    wanted = [x for x in inputs if x.requires_grad]
    if not pairs:
        return results, tuple(telegrad.zeros_like(x) for x in wanted)
    roots, weights = zip(*pairs)
    found = telegrad.autograd.grad(roots, wanted, weights, materialize_grads=True, **how)
    return results, found


def tangents(function: Callable[..., Any], inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The tangents of the results where every input that requires grad moves by one."""
    from telegrad.testing.derivatives import jvp

    places = [i for i, x in enumerate(inputs) if x.requires_grad]

    def of_wanted(*wanted: Tensor) -> tuple[Tensor, ...]:
        arguments = [wrap(x.array) for x in inputs]
        for i, x in zip(places, wanted):
            arguments[i] = x
        return tuple_of(function(*arguments))

    wanted = [wrap(inputs[i].array) for i in places]
    return jvp(of_wanted, wanted, [telegrad.ones_like(x) for x in wanted])
