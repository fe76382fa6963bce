"""Checking and completing the arguments of public functions."""

import operator
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from telegrad.errors import DTypeError, ShapeError, UsageError
from telegrad.rules.manipulation import ASTYPE
from telegrad.tensors import Tensor, apply
from telegrad.tensors.inputs import as_inputs, joint_dtype
from telegrad.tensors.torch_hints import unexpected

ArrayLike: TypeAlias = Any
"""A Tensor, or a Python number beside one."""
Axis: TypeAlias = int | tuple[int, ...] | None
Unknown: TypeAlias = Mapping[str, object]
"""Options by name that a function does not have, in PyTorch's words, perhaps."""


def as_tensor(x: Any, name: str, unknown: Unknown | None = None) -> Tensor:
    """Return `x` if it is a Tensor, and a number or NumPy array as a constant; else raise.

    `unknown` are options given to the function `name` that it does not have.
    """
    if unknown:
        raise unexpected(name, unknown)
    return x if isinstance(x, Tensor) else as_inputs(name, (x,))[0]


def as_matrix(x: Any, name: str, unknown: Unknown | None = None) -> Tensor:
    """Return `x` as a Tensor with at least two axes."""
    matrix = as_tensor(x, name, unknown)
    if matrix.ndim < 2:
        raise ShapeError(
            f"expected a matrix or a stack of matrices in {name}, got shape {matrix.shape}"
        )
    return matrix


def as_indices(x: Any, name: str) -> Tensor:
    """Return `x` as a Tensor of integers."""
    indices = as_tensor(x, name)
    if indices.dtype.kind not in "iu":
        raise DTypeError(f"expected integers as indices in {name}, got {indices.dtype}")
    return indices


def check_floating(x: Tensor, name: str) -> None:
    """Raise unless `x` has a floating or complex dtype."""
    if x.dtype.kind not in "fc":
        raise DTypeError(
            f"expected floating or complex numbers in {name}, got {x.dtype}; use "
            ".to(telegrad.float32)"
        )


def check_real(x: Tensor, name: str) -> None:
    """Raise unless `x` has a real floating dtype."""
    if x.dtype.kind != "f":
        raise DTypeError(
            f"expected real numbers in {name}, got {x.dtype}; "
            + ("take real(x) or abs(x)" if x.dtype.kind == "c" else "use x.to(telegrad.float32)")
        )


def check_keepdims(keepdims: Any, name: str) -> None:
    """Raise unless `keepdims` is a truth value: by mistake it may be a second axis or a dtype."""
    if not isinstance(keepdims, (bool, np.bool_)):
        raise UsageError(
            f"expected True or False as keepdims in {name}, got {keepdims!r}; several axes are a "
            "tuple, and a dtype is dtype="
        )


def promoted(name: str, inputs: Sequence[Any]) -> list[Tensor]:
    """Return the inputs as Tensors of one dtype, with their history."""
    tensors = as_inputs(name, inputs)
    joint = joint_dtype([x.dtype for x in tensors])
    return [x if x.dtype == joint else apply(ASTYPE, x, dtype=joint) for x in tensors]


def shape_of(shape: int | Sequence[int], *more: int) -> tuple[int, ...]:
    """Return a shape that is given as a sequence of numbers, or as one or several numbers."""
    lengths: Sequence[Any] = shape if isinstance(shape, Sequence) and not more else (shape, *more)
    try:
        found = tuple(operator.index(length) for length in lengths)
    except TypeError:
        raise DTypeError(
            f"expected whole numbers as the lengths of a shape, got {tuple(lengths)!r}; a dtype is "
            "given as dtype="
        ) from None
    if min(found, default=0) < 0:
        raise ShapeError(f"expected lengths of 0 or more in a shape, got {found}")
    return found


def normalized_axis(axis: int, ndim: int, name: str) -> int:
    """Return `axis` counted from 0, checked."""
    if type(axis) is not int:
        axis = _integer(axis, name)
    if not ndim:
        raise ShapeError(f"expected a tensor with axes in {name}, got a 0-d tensor and axis {axis}")
    if not -ndim <= axis < ndim:
        raise ShapeError(
            f"expected an axis from {-ndim} to {ndim - 1} in {name}, got {axis}: the tensor has "
            f"{ndim} axes"
        )
    return axis % ndim


def _integer(axis: Any, name: str) -> int:
    # True comes from another order of options, a tensor from the habit of max(x, y).
    if isinstance(axis, np.integer):
        return int(axis)
    both = {"max": "maximum", "min": "minimum"}.get(name)
    advice = ""
    if isinstance(axis, list):
        advice = "; several axes are a tuple"
    elif both and isinstance(axis, Tensor):
        advice = f"; of two tensors element by element, write telegrad.{both}"
    raise DTypeError(f"expected an integer as axis in {name}, got {type(axis).__name__}{advice}")


def normalized_axes(axis: Axis, ndim: int, name: str) -> tuple[int, ...]:
    """Return the axes counted from 0, checked, each once; all of them for None."""
    if axis is None:
        return tuple(range(ndim))
    axes = axis if isinstance(axis, tuple) else (axis,)
    result = tuple(normalized_axis(a, ndim, name) for a in axes)
    if len(set(result)) != len(result):
        raise ShapeError(f"expected each axis once in {name}, got {axes}")
    return result
