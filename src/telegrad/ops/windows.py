"""Borders around a tensor, and windows that slide over it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from telegrad.arrays.plain.placement import places
from telegrad.errors import ShapeError, UsageError
from telegrad.ops.arguments import ArrayLike, as_tensor, normalized_axis
from telegrad.ops.indexing import getitem
from telegrad.rules import windows as _primitives
from telegrad.tensors import Tensor, apply

_BY_POSITION = ("edge", "reflect", "symmetric", "wrap")


def pad(
    x: ArrayLike, /, pad_width: Any, *, mode: str = "constant", constant_values: Any = 0
) -> Tensor:
    """Return x with more elements around it.

    Arguments:
        x: The values.
        pad_width: A number, a pair (before, after), or a pair for each axis.
        mode: "constant", or x itself continued: "edge", "reflect", "symmetric", "wrap".
        constant_values: What "constant" fills with.

    Raises:
        ShapeError: If a width is negative, or the widths don't fit the axes.
        UsageError: If the mode is not known.

    Examples:
        >>> tg.pad(tg.tensor([1, 2]), 1)
        tensor([0, 1, 2, 0])
        >>> tg.pad(tg.tensor([1, 2, 3]), (0, 2), mode="reflect")
        tensor([1, 2, 3, 2, 1])
    """
    result = as_tensor(x, "pad")
    widths = _widths(pad_width, result)
    if mode == "constant":
        return apply(_primitives.PAD, result, pad_width=widths, constant_values=constant_values)
    if mode not in _BY_POSITION:
        raise UsageError(
            f"expected 'constant', {', '.join(map(repr, _BY_POSITION))} as mode of pad, got "
            f"{mode!r}"
        )
    for axis, width in enumerate(widths):
        if any(width):
            positions = np.pad(np.arange(result.shape[axis]), width, mode=mode)  # type: ignore[call-overload]
            result = getitem(result, (*[slice(None)] * axis, positions))
    return result


def _widths(pad_width: Any, x: Tensor) -> tuple[tuple[int, int], ...]:
    if not x.ndim:
        return ()
    try:
        pairs = np.broadcast_to(np.asarray(pad_width, dtype=np.int64), (x.ndim, 2)).tolist()
    except (ValueError, TypeError):
        pairs = [(-1, -1)]
    if any(width < 0 for pair in pairs for width in pair):
        raise ShapeError(
            f"expected a width of 0 or more, a pair (before, after) or one pair for each of "
            f"{x.ndim} axes as pad_width, got {pad_width!r}"
        )
    return tuple((before, after) for before, after in pairs)


def windows(
    x: ArrayLike,
    /,
    sizes: int | Sequence[int],
    *,
    axes: int | Sequence[int] | None = None,
    strides: int | Sequence[int] = 1,
    dilations: int | Sequence[int] = 1,
) -> Tensor:
    """Return the windows that slide over some axes; their own axes come last.

    Arguments:
        x: The values.
        sizes: The lengths of a window.
        axes: The axes it slides over; the last ones by default.
        strides: How far apart windows are.
        dilations: How far apart the elements of a window are.

    Raises:
        ShapeError: If a window does not fit, or the numbers of axes differ.

    Examples:
        >>> tg.windows(tg.arange(5), 3, strides=2)
        tensor([[0, 1, 2],
                [2, 3, 4]])
    """
    x = as_tensor(x, "windows")
    lengths, places_of, steps, gaps = _sliding("windows", x.ndim, sizes, axes, strides, dilations)
    for size, axis, stride, gap in zip(lengths, places_of, steps, gaps):
        if not places(x.shape[axis], size, stride, gap):
            raise ShapeError(
                f"expected windows that fit on axis {axis} of shape {x.shape}, got {size} elements "
                f"{gap} apart"
            )
    return apply(
        _primitives.WINDOWS, x, sizes=lengths, axes=places_of, strides=steps, dilations=gaps
    )


def overlap_add(
    x: ArrayLike,
    /,
    shape: Sequence[int],
    *,
    axes: int | Sequence[int] | None = None,
    strides: int | Sequence[int] = 1,
    dilations: int | Sequence[int] = 1,
) -> Tensor:
    """Return windows added up where ``windows`` takes them from; its adjoint.

    The other arguments are those of ``windows``.

    Arguments:
        x: The windows; their own axes come last.
        shape: The shape of the result.

    Raises:
        ShapeError: If the windows don't fit the shape.

    Examples:
        >>> tg.overlap_add(tg.windows(tg.arange(5), 3, strides=2), (5,), strides=2)
        tensor([0, 1, 4, 3, 4])
    """
    x = as_tensor(x, "overlap_add")
    shape = tuple(shape)
    sizes = x.shape[len(shape) :]
    lengths, places_of, steps, gaps = _sliding(
        "overlap_add", len(shape), sizes, axes, strides, dilations
    )
    expected = list(shape)
    for size, axis, stride, gap in zip(lengths, places_of, steps, gaps):
        expected[axis] = places(shape[axis], size, stride, gap)
    if x.shape[: len(shape)] != tuple(expected):
        raise ShapeError(
            f"expected windows of shape {(*expected, *sizes)} to lay back on {shape}, got {x.shape}"
        )
    return apply(
        _primitives.OVERLAP_ADD, x, shape=shape, axes=places_of, strides=steps, dilations=gaps
    )


def _sliding(
    name: str, ndim: int, sizes: Any, axes: Any, strides: Any, dilations: Any
) -> tuple[tuple[int, ...], ...]:
    """Return sizes, axes, strides and dilations, one each for every axis of the windows."""
    sizes = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    count = len(sizes)
    if axes is None:
        axes = range(ndim - count, ndim)
    given = (axes,) if isinstance(axes, int) else tuple(axes)
    axes = tuple(normalized_axis(axis, ndim, name) for axis in given)
    strides = (strides,) * count if isinstance(strides, int) else tuple(strides)
    dilations = (dilations,) * count if isinstance(dilations, int) else tuple(dilations)
    if not len(axes) == len(strides) == len(dilations) == count or len(set(axes)) != count:
        raise ShapeError(
            f"expected as many different axes, strides and dilations in {name} as sizes, got "
            f"{given}, {strides}, {dilations} and {sizes}"
        )
    if min((*sizes, *strides, *dilations), default=1) < 1:
        raise ShapeError(
            f"expected sizes, strides and dilations of 1 or more in {name}, got {sizes}, {strides} "
            f"and {dilations}"
        )
    return sizes, axes, strides, dilations
