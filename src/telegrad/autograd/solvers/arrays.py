"""Convert Tensors to a black box's arrays, and its results back.

A black box receives read-only arrays, which it may keep: copies if others may write to the memory.
Its results are copied, since many solvers fill the same buffer each time.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from telegrad.autograd.trees import flatten
from telegrad.errors import DTypeError, GradientError, ShapeError
from telegrad.ops.creation import asarray
from telegrad.tensors import Tensor
from telegrad.tensors.describe import kind_of, way_in
from telegrad.tensors.shared import SharedArray


class Like(NamedTuple):
    """The shape and dtype that a gradient of an argument, or a tangent of a result, must have."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def like(value: Any) -> Like | None:
    """Return the shape and dtype of a value's derivative; None if it has none."""
    return Like(value.shape, value.dtype) if is_real(value) else None


def seen(value: Any) -> Any:
    """Return an argument as a black box receives it: an array for a Tensor."""
    if not isinstance(value, Tensor):
        return value
    array = value.array
    if not isinstance(array, np.ndarray):
        return array
    view = np.array(array, subok=False) if type(array) is SharedArray else array.view()
    view.flags.writeable = False
    return view


def refuse_hidden(name: str, args: Sequence[Any]) -> None:
    """Raise if an argument that is no Tensor has a derivative, which would be lost."""
    for i, arg in enumerate(args):
        if isinstance(arg, Tensor):
            continue
        for leaf in flatten(arg)[0]:
            if getattr(leaf, "requires_grad", False) or getattr(leaf, "is_dual", False):
                inside = "" if leaf is arg else f", inside of a {kind_of(arg)}"
                way = "give it as an argument of its own"
                if not isinstance(leaf, Tensor):
                    way = f"make it a Tensor with {way_in(leaf)}"
                raise GradientError(
                    f"expected Tensors as those arguments of {name} that have derivatives, got "
                    f"{kind_of(leaf)} as argument {i}{inside}; {way}"
                )


def taken(value: Any, where: str) -> Tensor:
    """Return a black box's result, copied to a Tensor; `where` is for the error."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    try:
        return asarray(value, copy=True)
    except (TypeError, ValueError) as error:
        raise DTypeError(f"expected an array of numbers {where}, got {kind_of(value)}") from error


def fitted(value: Tensor, like: Like, where: str) -> Tensor:
    """Return the value in the dtype of `like`, whose shape it must have."""
    if value.shape != like.shape:
        raise ShapeError(f"expected shape {like.shape} {where}, got shape {value.shape}")
    if value.dtype.kind == "c" and like.dtype.kind != "c":
        raise DTypeError(f"expected real numbers {where}, got {value.dtype}")
    return value if value.dtype == like.dtype else value.to(like.dtype)


def is_real(value: Any) -> bool:
    """Tell whether an argument can have a derivative: a Tensor of floating or complex numbers."""
    return isinstance(value, Tensor) and value.dtype.kind in "fc"
