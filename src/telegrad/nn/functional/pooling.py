"""Pooling of images: the largest, or the average, of each window."""

from typing import Any

import numpy as np

from telegrad.arrays.plain.placement import bordered_shape
from telegrad.errors import ShapeError, UsageError
from telegrad.nn.functional.convolution import pair
from telegrad.ops.arguments import check_floating, check_real
from telegrad.rules.pooling import POOL_MAX, POOL_SUM
from telegrad.tensors import Tensor, apply, apply_several, wrap


def max_pool2d(
    input: Tensor,
    kernel_size: int | tuple[int, int],
    stride: int | tuple[int, int] | None = None,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Return the largest element of each window; of equal ones the first receives the gradient.

    Arguments:
        input: (item, channel, row, column), or without the axis of items.
        kernel_size: The rows and columns of a window; a number for both.
        stride: How far apart windows are; `kernel_size` by default.
        padding: The border around the input.
        dilation: How far apart the elements of a window are.
        ceil_mode: Whether a last window may reach beyond the border.

    Raises:
        DTypeError: If the values are not real.
        ShapeError: If a window does not fit.

    Examples:
        >>> tg.nn.functional.max_pool2d(tg.reshape(tg.arange(4.0), (1, 1, 2, 2)), 2)
        tensor([[[[3.]]]])
    """
    if input.ndim == 3:
        return max_pool2d(input[None], kernel_size, stride, padding, dilation, ceil_mode)[0]
    check_real(input, "max_pool2d")
    how = _windows("max_pool2d", input, kernel_size, stride, padding, dilation, ceil_mode)
    return apply_several(POOL_MAX, input, **how)[0]


def avg_pool2d(
    input: Tensor,
    kernel_size: int | tuple[int, int],
    stride: int | tuple[int, int] | None = None,
    padding: int | tuple[int, int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Return the average of each window.

    The other arguments are those of ``max_pool2d``.

    Arguments:
        count_include_pad: Whether the border counts in the average.
        divisor_override: What to divide by, instead of the number of elements.

    Raises:
        UsageError: If the divisor is 0.
        ShapeError: If a window does not fit.

    Examples:
        >>> tg.nn.functional.avg_pool2d(tg.reshape(tg.arange(4.0), (1, 1, 2, 2)), 2)
        tensor([[[[1.5]]]])
    """
    if input.ndim == 3:
        rest = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        return avg_pool2d(input[None], *rest)[0]
    if divisor_override == 0:
        raise UsageError("expected a divisor_override other than 0 in avg_pool2d, got 0")
    check_floating(input, "avg_pool2d")
    how = _windows("avg_pool2d", input, kernel_size, stride, padding, 1, ceil_mode)
    total: Tensor = apply(POOL_SUM, input, **how)
    divisor = divisor_override
    even = all(before == after for before, after in how["pads"])
    if divisor is None and even and (count_include_pad or pair(padding, "padding") == (0, 0)):
        divisor = how["sizes"][0] * how["sizes"][1]
    if divisor is not None:
        return total * (1 / divisor)
    counts = _counts(input, pair(padding, "padding"), how, count_include_pad)
    return total / wrap(counts)


def _counts(input: Tensor, widths: tuple[int, int], how: Any, count_include_pad: bool) -> Any:
    """Return how many elements each window averages; what ceil_mode adds never counts."""
    by_axis = []
    for length, total, width, size, stride, (before, _) in zip(
        input.shape[2:],
        bordered_shape(input.shape[2:], how["pads"]),
        widths,
        how["sizes"],
        how["strides"],
        how["pads"],
    ):
        starts = np.arange((total - size) // stride + 1) * stride
        low, high = (0, length + 2 * width) if count_include_pad else (before, before + length)
        by_axis.append(np.minimum(starts + size, high) - np.maximum(starts, low))
    counts = by_axis[0][:, None] * by_axis[1]
    return counts.astype(input.dtype)


def _windows(
    name: str, input: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> dict[str, Any]:
    sizes = pair(kernel, "kernel_size")
    strides = sizes if stride is None else pair(stride, "stride")
    widths, gaps = pair(padding, "padding"), pair(dilation, "dilation")
    if min(*sizes, *strides, *gaps) < 1:
        raise UsageError(
            f"expected kernel_size, stride and dilation of 1 or more in {name}, got {kernel}, "
            f"{stride} and {dilation}"
        )
    if any(width < 0 or width > size // 2 for width, size in zip(widths, sizes)):
        raise UsageError(
            f"expected padding from 0 to half of kernel_size {kernel} in {name}, got {padding}"
        )
    if input.ndim != 4:
        raise ShapeError(
            f"expected axes (item, channel, row, column) in {name}, got shape {input.shape}"
        )
    pads = []
    for length, size, step, width, gap in zip(input.shape[2:], sizes, strides, widths, gaps):
        span = gap * (size - 1) + 1
        room = length + 2 * width - span
        # With ceil_mode a window may be larger than the input, by less than one stride.
        if room < 0 and not (ceil_mode and room > -step):
            raise ShapeError(
                f"expected an input larger than the window {sizes} in {name}, got {input.shape}"
            )
        after = width
        # One more window may reach beyond the end if it begins in the input or its left border.
        if ceil_mode and room % step and (room // step + 1) * step < length + width:
            after += step - room % step
        pads.append((width, after))
    return {"sizes": sizes, "strides": strides, "pads": tuple(pads), "dilations": gaps}
