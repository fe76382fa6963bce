"""Samples of ``rules/windows.py``."""

from typing import Any

import numpy as np
from tests.rules.samples.sample import Entry, complex_normal, normal, sample

__all__ = ["SAMPLES"]


def _pad(x: Any, *, pad_width: Any, constant_values: Any) -> Any:
    return np.pad(x, pad_width, constant_values=constant_values) if x.ndim else x


def _torch_pad(torch: Any, x: Any, *, pad_width: Any, constant_values: Any) -> Any:
    flat = [width for pair in reversed(pad_width) for width in pair]
    return torch.nn.functional.pad(x, flat, value=constant_values) if flat else x + 0


def _windows(x: Any, *, sizes: Any, axes: Any, strides: Any, dilations: Any) -> Any:
    spans = tuple((k - 1) * d + 1 for k, d in zip(sizes, dilations))
    all_of_them = np.lib.stride_tricks.sliding_window_view(x, spans, axes)
    index = [slice(None)] * all_of_them.ndim
    for i, (axis, stride, dilation) in enumerate(zip(axes, strides, dilations)):
        index[axis] = slice(None, None, stride)
        index[x.ndim + i] = slice(None, None, dilation)
    return all_of_them[tuple(index)]


def _torch_windows(
    torch: Any, x: Any, *, sizes: Any, axes: Any, strides: Any, dilations: Any
) -> Any:
    for size, axis, stride, dilation in zip(sizes, axes, strides, dilations):
        x = x.unfold(axis, (size - 1) * dilation + 1, stride)[..., ::dilation]
    return x


def _overlap_add(x: Any, *, shape: Any, axes: Any, strides: Any, dilations: Any) -> Any:
    out = np.zeros(shape, dtype=x.dtype)
    for place in np.ndindex(x.shape):
        at = list(place[: len(shape)])
        for i, (axis, stride, dilation) in enumerate(zip(axes, strides, dilations)):
            at[axis] = place[axis] * stride + place[len(shape) + i] * dilation
        out[tuple(at)] += x[place]
    return out


_no_twin = "PyTorch's fold is for images alone"

SAMPLES = {
    "pad": Entry(
        (
            sample("one axis", normal(3), pad_width=((1, 2),), constant_values=0),
            sample("two axes", normal(2, 2), pad_width=((0, 1), (2, 0)), constant_values=1.5),
            sample("0-d", normal(), pad_width=(), constant_values=0),
            sample("zero-size", normal(0, 2), pad_width=((1, 1), (0, 0)), constant_values=2.0),
            sample("complex", complex_normal(2), pad_width=((1, 0),), constant_values=0),
        ),
        numpy=_pad,
        torch=_torch_pad,
    ),
    "windows": Entry(
        (
            sample("plain", normal(5), sizes=(3,), axes=(0,), strides=(1,), dilations=(1,)),
            sample("stride", normal(2, 6), sizes=(2,), axes=(1,), strides=(3,), dilations=(1,)),
            sample("dilation", normal(6), sizes=(2,), axes=(0,), strides=(2,), dilations=(3,)),
            sample(
                "two axes",
                normal(3, 4),
                sizes=(2, 2),
                axes=(0, 1),
                strides=(1, 2),
                dilations=(1, 1),
            ),
            sample(
                "axes not last, in another order",
                normal(3, 4, 1),
                sizes=(3, 2),
                axes=(1, 0),
                strides=(1, 1),
                dilations=(1, 2),
            ),
            sample("zero-size", normal(0, 3), sizes=(2,), axes=(1,), strides=(1,), dilations=(1,)),
            sample(
                "complex", complex_normal(4), sizes=(2,), axes=(0,), strides=(1,), dilations=(1,)
            ),
        ),
        numpy=_windows,
        torch=_torch_windows,
    ),
    "overlap_add": Entry(
        (
            sample("plain", normal(3, 3), shape=(5,), axes=(0,), strides=(1,), dilations=(1,)),
            sample("apart", normal(2, 2), shape=(6,), axes=(0,), strides=(3,), dilations=(1,)),
            sample(
                "two axes",
                normal(2, 2, 2, 1),
                shape=(3, 4),
                axes=(0, 1),
                strides=(1, 2),
                dilations=(1, 1),
            ),
            sample(
                "zero-size", normal(0, 2, 2), shape=(0, 3), axes=(1,), strides=(1,), dilations=(1,)
            ),
            sample(
                "complex", complex_normal(2, 2), shape=(3,), axes=(0,), strides=(1,), dilations=(1,)
            ),
        ),
        numpy=_overlap_add,
        no_torch=_no_twin,
    ),
}
