"""The public functions as one namespace: rules run on it, and Tensor's methods are made of it."""

from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

from telegrad import fft, linalg
from telegrad.ops import (
    activations,
    arithmetic,
    concatenation,
    constants,
    contraction,
    creation,
    cumulative,
    devices,
    dtypes,
    filled,
    indexing,
    logic,
    magnitude,
    manipulation,
    products,
    random,
    rearrangement,
    reductions,
    rounding,
    scatter,
    searching,
    selection,
    sets,
    softmax,
    sorting,
    special,
    transcendental,
    updates,
    windows,
)
from telegrad.rules import convolution, pooling
from telegrad.tensors import apply
from telegrad.tensors.late_bound import late_bound
from telegrad.tensors.methods import Functions

_FAMILIES = (
    *(activations, arithmetic, rearrangement, constants, contraction, creation, cumulative, dtypes),
    devices,
    *(filled, indexing, concatenation, logic, magnitude, products, random, reductions, rounding),
    *(scatter, searching, selection, sets, manipulation, softmax, sorting, special),
    *(transcendental, updates, windows),
)


def _functions(family: ModuleType) -> dict[str, Any]:
    """Return what a module defines for others; constants and dtypes list their names."""
    listed = getattr(family, "__all__", None)
    return {
        name: value
        for name, value in vars(family).items()
        if (name in listed if listed else getattr(value, "__module__", "") == family.__name__)
        and not name.startswith("_")
    }


_FOR_RULES = (
    *(convolution.CONVOLVE, convolution.CONVOLVE_INPUT, convolution.CONVOLVE_WEIGHT),
    *(pooling.POOL_MAX, pooling.POOL_TAKE, pooling.POOL_PUT, pooling.POOL_SUM, pooling.POOL_SPREAD),
)
"""Primitives that rules call and that have no public function here: those are in ``nn``."""

NAMESPACE = SimpleNamespace(
    **{name: value for family in _FAMILIES for name, value in _functions(family).items()},
    **{primitive.name: partial(apply, primitive) for primitive in _FOR_RULES},
    linalg=linalg,
    fft=fft,
    cofactor=linalg.cofactor,
    expm=linalg.expm,
    matrix_product=products.matmul,
    solve_triangular=linalg.solve_triangular,
    name="telegrad",
    is_numpy=False,
    dtype_of=lambda x: x.dtype,
)

late_bound.namespace = NAMESPACE
for _name in [name for name in vars(Functions) if not name.startswith("_")]:
    setattr(Functions, _name, getattr(NAMESPACE, _name))
