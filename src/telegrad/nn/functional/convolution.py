"""Convolution of images."""

from numbers import Integral
from typing import Any

from telegrad.errors import ShapeError, UsageError
from telegrad.ops.arguments import check_floating
from telegrad.ops.concatenation import concat
from telegrad.ops.manipulation import reshape
from telegrad.rules.convolution import CONVOLVE
from telegrad.tensors import Tensor, apply


def pair(value: Any, name: str) -> tuple[int, int]:
    """Return two numbers, for rows and columns, given one for both or one for each."""
    if isinstance(value, Integral):
        return int(value), int(value)
    given = tuple(value)
    if len(given) != 2 or not all(isinstance(each, Integral) for each in given):
        raise UsageError(f"expected a number or a pair of them as {name}, got {value!r}")
    return int(given[0]), int(given[1])


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] | str = 0,
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
) -> Tensor:
    """Return `input` weighted by a small kernel at every place.

    Arguments:
        input: (item, channel, row, column); without the axis of items it is one item.
        weight: (out, in / groups, row, column).
        bias: (out,), or None.
        stride: How far apart the places are.
        padding: The border around the input, or "same" or "valid".
        dilation: How far apart the elements of the kernel are.
        groups: Into how many parts the channels are split.

    Raises:
        ShapeError: If the shapes don't fit.
        UsageError: If an option is out of range.

    Examples:
        >>> tg.nn.functional.conv2d(tg.ones(1, 1, 3, 3), tg.ones(1, 1, 2, 2))
        tensor([[[[4., 4.],
                  [4., 4.]]]])
    """
    if input.ndim == 3:
        return conv2d(input[None], weight, bias, stride, padding, dilation, groups)[0]
    strides, dilations = pair(stride, "stride"), pair(dilation, "dilation")
    if min(*strides, *dilations, groups) < 1:
        raise UsageError(
            f"expected stride, dilation and groups of 1 or more in conv2d, got {stride}, "
            f"{dilation} and {groups}"
        )
    _check_shapes(input, weight, bias, groups)
    sizes = (weight.shape[2], weight.shape[3])
    pads = tuple(pads_of(padding, sizes, strides, dilations))
    for length, size, gap, pad in zip(input.shape[2:], sizes, dilations, pads):
        if length + sum(pad) < gap * (size - 1) + 1:
            raise ShapeError(
                "expected an input at least as large as the kernel in conv2d, got one of shape "
                f"{input.shape} with padding {padding} and weight of shape {weight.shape}"
            )
    if input.dtype != weight.dtype:
        check_floating(input, "conv2d")
    how = {"strides": strides, "pads": pads, "dilations": dilations}
    if groups == 1:
        out: Tensor = apply(CONVOLVE, input, weight, **how)
    else:
        parts = zip(_cut(input, 1, groups), _cut(weight, 0, groups))
        out = concat([apply(CONVOLVE, x, w, **how) for x, w in parts], axis=1)
    return out if bias is None else out + reshape(bias, (bias.shape[0], 1, 1))


def _cut(x: Tensor, axis: int, groups: int) -> list[Tensor]:
    step = x.shape[axis] // groups
    before = (slice(None),) * axis
    return [x[(*before, slice(i * step, (i + 1) * step))] for i in range(groups)]


def pads_of(padding: Any, sizes: Any, strides: Any, dilations: Any) -> list[tuple[int, int]]:
    """Return the border at both ends of each place axis; "same" keeps a result as large as x."""
    if padding == "valid":
        return [(0, 0), (0, 0)]
    if padding == "same":
        if strides != (1, 1):
            raise UsageError(f"expected stride 1 with padding='same', got {strides}")
        total = [d * (k - 1) for k, d in zip(sizes, dilations)]
        return [(each // 2, each - each // 2) for each in total]
    if isinstance(padding, str):
        raise UsageError(f"expected numbers, 'same' or 'valid' as padding, got {padding!r}")
    widths = pair(padding, "padding")
    if min(widths) < 0:
        raise UsageError(f"expected padding of 0 or more, got {padding}")
    return [(each, each) for each in widths]


def _check_shapes(input: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> None:
    if weight.ndim != 4:
        raise ShapeError(
            f"expected weight of shape (out, in, row, column) in conv2d, got {weight.shape} for "
            f"input of shape {input.shape}"
        )
    if input.ndim != 4 or input.shape[1] != weight.shape[1] * groups:
        raise ShapeError(
            f"expected an input of shape (item, {weight.shape[1] * groups}, row, column) for "
            f"weight of shape {weight.shape} and {groups} groups in conv2d, got shape "
            f"{input.shape}"
        )
    if weight.shape[0] % groups:
        raise ShapeError(
            f"expected channels out that {groups} groups divide in conv2d, got weight of shape "
            f"{weight.shape}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError(
            f"expected a bias of shape {weight.shape[:1]} for weight of shape {weight.shape} in "
            f"conv2d, got {bias.shape}"
        )
