"""Many values to fewer: sums, products, averages, extremes and their kin."""

from collections.abc import Callable
from typing import Any, Never

from telegrad.ops.arguments import ArrayLike, Axis, as_tensor, check_keepdims, normalized_axes
from telegrad.rules import cumulative as _cumulative
from telegrad.rules import reductions as _primitives
from telegrad.rules import searching as _searching
from telegrad.rules import statistics as _statistics
from telegrad.rules.primitive import Primitive
from telegrad.tensors import Tensor, apply
from telegrad.tensors.dtypes import as_dtype
from telegrad.tensors.recording.fast_paths import total
from telegrad.tensors.torch_hints import unexpected


def _reduced(
    primitive: Primitive,
    x: ArrayLike,
    axis: Axis,
    keepdims: bool,
    unknown: dict[str, Never],
    fast_path: Callable[[Any, Any, bool], Tensor | None] | None = None,
    dtype: Any = None,
    **options: Any,
) -> Tensor:
    if unknown:
        raise unexpected(primitive.name, unknown)
    if dtype is not None:
        x = as_tensor(x, primitive.name).to(as_dtype(dtype))
        return _reduced(primitive, x, axis, keepdims, unknown, **options).to(dtype)
    if keepdims is not False:
        check_keepdims(keepdims, primitive.name)
    if not isinstance(x, Tensor):
        x = as_tensor(x, primitive.name)
    if axis is not None:
        axis = normalized_axes(axis, x.ndim, primitive.name)
    if fast_path is not None and (made := fast_path(x, axis, keepdims)) is not None:
        return made
    return apply(primitive, x, axis=axis, keepdims=keepdims, **options)


_sum, _mean = total(_primitives.SUM), total(_primitives.MEAN)


def sum(
    x: ArrayLike,
    /,
    axis: Axis = None,
    keepdims: bool = False,
    *,
    dtype: Any = None,
    **unknown: Never,
) -> Tensor:
    """Return the sum over some axes, or over all of them.

    Arguments:
        x: The values.
        axis: The axis, or a tuple of axes, to go over; all of them by default.
        keepdims: Whether the axes gone over stay, with length 1.
        dtype: The dtype to compute in and to return; that of x by default.

    Examples:
        >>> tg.sum(tg.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor(10.)
        >>> tg.sum(tg.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=0)
        tensor([4., 6.])
    """
    return _reduced(_primitives.SUM, x, axis, keepdims, unknown, _sum, dtype)


def prod(
    x: ArrayLike,
    /,
    axis: Axis = None,
    keepdims: bool = False,
    *,
    dtype: Any = None,
    **unknown: Never,
) -> Tensor:
    """Return the product over some axes, or over all of them.

    The arguments are those of ``sum``.

    Examples:
        >>> tg.prod(tg.tensor([1.0, 2.0, 3.0]))
        tensor(6.)
    """
    return _reduced(_cumulative.PROD, x, axis, keepdims, unknown, dtype=dtype)


def mean(x: ArrayLike, /, axis: Axis = None, keepdims: bool = False, **unknown: Never) -> Tensor:
    """Return the average over some axes, or over all of them.

    The arguments are those of ``sum``.

    Examples:
        >>> tg.mean(tg.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=1, keepdims=True)
        tensor([[1.5],
                [3.5]])
    """
    return _reduced(_primitives.MEAN, x, axis, keepdims, unknown, _mean)


def var(
    x: ArrayLike,
    /,
    axis: Axis = None,
    *,
    correction: float = 0.0,
    keepdims: bool = False,
    **unknown: Never,
) -> Tensor:
    """Return the variance: squared deviations summed, over their number less `correction`.

    The other arguments are those of ``sum``.

    Arguments:
        correction: What is taken off the number of elements; 1 for a sample.

    Examples:
        >>> tg.var(tg.tensor([1.0, 2.0, 3.0]))
        tensor(0.6667)
        >>> tg.var(tg.tensor([1.0, 2.0, 3.0]), correction=1)
        tensor(1.)
    """
    return _reduced(_statistics.VAR, x, axis, keepdims, unknown, correction=correction)


def std(
    x: ArrayLike,
    /,
    axis: Axis = None,
    *,
    correction: float = 0.0,
    keepdims: bool = False,
    **unknown: Never,
) -> Tensor:
    """Return the standard deviation: the root of ``var``.

    The other arguments are those of ``sum``.

    Arguments:
        correction: What is taken off the number of elements; 1 for a sample.

    Examples:
        >>> tg.std(tg.tensor([1.0, 2.0, 3.0]), correction=1)
        tensor(1.)
    """
    return _reduced(_statistics.STD, x, axis, keepdims, unknown, correction=correction)


def max(x: ArrayLike, /, axis: Axis = None, keepdims: bool = False, **unknown: Never) -> Tensor:
    """Return the largest element over some axes; equal ones share the gradient.

    The arguments are those of ``sum``.

    Examples:
        >>> tg.max(tg.tensor([[1.0, 4.0], [3.0, 2.0]]), axis=1)
        tensor([4., 3.])
    """
    return _reduced(_primitives.AMAX, x, axis, keepdims, unknown)


def min(x: ArrayLike, /, axis: Axis = None, keepdims: bool = False, **unknown: Never) -> Tensor:
    """Return the smallest element over some axes; equal ones share the gradient.

    The arguments are those of ``sum``.

    Examples:
        >>> tg.min(tg.tensor([[1.0, 4.0], [3.0, 2.0]]), axis=1)
        tensor([1., 2.])
    """
    return _reduced(_primitives.AMIN, x, axis, keepdims, unknown)


def all(x: ArrayLike, /, axis: Axis = None, keepdims: bool = False, **unknown: Never) -> Tensor:
    """Say whether all elements over some axes are true.

    The arguments are those of ``sum``.

    Examples:
        >>> tg.all(tg.tensor([True, False]))
        tensor(False)
    """
    return _reduced(_searching.ALL, x, axis, keepdims, unknown)


def any(x: ArrayLike, /, axis: Axis = None, keepdims: bool = False, **unknown: Never) -> Tensor:
    """Say whether some element over some axes is true.

    The arguments are those of ``sum``.

    Examples:
        >>> tg.any(tg.tensor([True, False]))
        tensor(True)
    """
    return _reduced(_searching.ANY, x, axis, keepdims, unknown)


def count_nonzero(
    x: ArrayLike, /, axis: Axis = None, *, keepdims: bool = False, **unknown: Never
) -> Tensor:
    """Return how many elements over some axes are not zero.

    The arguments are those of ``sum``.

    Examples:
        >>> tg.count_nonzero(tg.tensor([0, 3, 0, 5]))
        tensor(2)
    """
    return _reduced(_searching.COUNT_NONZERO, x, axis, keepdims, unknown)
