"""Borders and sliding windows as NumPy does them best: windows are a view, sums go in place."""

from typing import Any

import numpy as np

from telegrad.arrays.plain.placement import bordered_shape, inner, offsets, places

__all__ = ["overlap_add", "pad", "windows"]


def pad(x: Any, pad_width: Any, *, constant_values: Any = 0) -> Any:
    shape = bordered_shape(x.shape, pad_width)
    if constant_values:
        out = np.full(shape, constant_values, dtype=x.dtype)
    else:
        out = np.zeros(shape, dtype=x.dtype)
    out[inner(x.shape, pad_width)] = x
    return out


def windows(x: Any, sizes: Any, *, axes: Any, strides: Any, dilations: Any) -> Any:
    shape, steps = list(x.shape), list(x.strides)
    for size, axis, stride, dilation in zip(sizes, axes, strides, dilations):
        shape[axis] = places(x.shape[axis], size, stride, dilation)
        steps[axis] = x.strides[axis] * stride
        shape.append(size)
        steps.append(x.strides[axis] * dilation)
    return np.lib.stride_tricks.as_strided(x, shape, steps, writeable=False)


def overlap_add(x: Any, shape: Any, *, axes: Any, strides: Any, dilations: Any) -> Any:
    out = np.zeros(shape, dtype=x.dtype)
    for at, offset in offsets(x.shape, axes, strides, dilations):
        out[at] += x[(..., *offset)]
    return out
