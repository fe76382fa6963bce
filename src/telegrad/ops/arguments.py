"""Checking and completing the arguments of public functions."""

from typing import Any, TypeAlias

from telegrad.errors import ShapeError
from telegrad.tensors import Tensor
from telegrad.tensors.inputs import as_inputs

__all__ = ["ArrayLike", "Axis", "as_tensor", "normalized_axes", "normalized_axis"]

ArrayLike: TypeAlias = Any
"""A Tensor, or a Python number beside one."""
Axis: TypeAlias = int | tuple[int, ...] | None


def as_tensor(x: Any, name: str) -> Tensor:
    """`x` itself if it is a Tensor; a number or NumPy array as a constant; else an error."""
    return x if isinstance(x, Tensor) else as_inputs(name, (x,))[0]


def normalized_axis(axis: int, ndim: int, name: str) -> int:
    """`axis` counted from 0, checked."""
    if not -ndim <= axis < ndim:
        raise ShapeError(
            f"expected an axis from {-ndim} to {ndim - 1} in {name}, got {axis}: the tensor has "
            f"{ndim} axes"
        )
    return axis % ndim


def normalized_axes(axis: Axis, ndim: int, name: str) -> tuple[int, ...]:
    """The axes counted from 0, checked, each once; all of them for None."""
    if axis is None:
        return tuple(range(ndim))
    axes = axis if isinstance(axis, tuple) else (axis,)
    result = tuple(normalized_axis(a, ndim, name) for a in axes)
    if len(set(result)) != len(result):
        raise ShapeError(f"expected each axis once in {name}, got {axes}")
    return result
