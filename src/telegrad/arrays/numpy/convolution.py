"""Convolution as NumPy does it best: columns with the channels last, and one matrix product.

Columns are copied out of a view of sliding windows. With the channels last in memory the copy moves
runs of ``width * channels`` numbers; where such a run is short, the copy goes the other way around,
a whole row of the image at a time, and the matrix product takes the columns transposed. Results
have the channels last in memory too (a view shows them in the usual order), so the next
convolution need not turn them.
"""

from math import prod
from typing import Any

import numpy as np

from telegrad.arrays.plain.placement import bordered_shape, inner, offsets, places
from telegrad.arrays.scratch import scratch

__all__ = ["convolve", "convolve_input", "convolve_weight"]

_SHORT_RUN = 16
"""Below this many numbers in a run, columns are copied by rows of the image."""


def _padded(x: Any, pads: Any) -> Any:
    """Return x with zeros around it and the channels last, in scratch memory or as a view."""
    if not any(before or after for before, after in pads):
        return np.moveaxis(x, 1, -1)
    shape = (x.shape[0], *bordered_shape(x.shape[2:], pads), x.shape[1])
    out = scratch("padded", prod(shape), x.dtype).reshape(shape)
    out.fill(0)
    out[(slice(None), *inner(x.shape[2:], pads))] = np.moveaxis(x, 1, -1)
    return out


def _columns(x: Any, sizes: Any, strides: Any, dilations: Any) -> Any:
    """Return a matrix with a row for each place of the result, a column for each number read."""
    if x.strides[-1] != x.itemsize and x.shape[-1] > 1:
        x = np.ascontiguousarray(x)
    lengths = x.shape[1:-1]
    counts = [places(n, k, s, d) for n, k, s, d in zip(lengths, sizes, strides, dilations)]
    steps = x.strides[1:-1]
    place_steps = [step * s for step, s in zip(steps, strides)]
    inner_steps = [step * d for step, d in zip(steps, dilations)]
    channels, rows = x.shape[-1], x.shape[0] * prod(counts)
    width = prod(sizes) * channels
    if sizes[-1] * channels < _SHORT_RUN:
        view = np.lib.stride_tricks.as_strided(
            x,
            (*sizes, channels, x.shape[0], *counts),
            (*inner_steps, x.strides[-1], x.strides[0], *place_steps),
            writeable=False,
        )
        return _copied(view).reshape(width, rows).T
    view = np.lib.stride_tricks.as_strided(
        x,
        (x.shape[0], *counts, *sizes, channels),
        (x.strides[0], *place_steps, *inner_steps, x.strides[-1]),
        writeable=False,
    )
    return _copied(view).reshape(rows, width)


def _copied(view: Any) -> Any:
    if view.flags.c_contiguous:
        return view
    out = scratch("columns", view.size, view.dtype).reshape(view.shape)
    np.copyto(out, view)
    return out


def _kernel_rows(w: Any) -> Any:
    """Return the kernel as a matrix: a row for each number that a place reads, channels last."""
    return np.moveaxis(w, (0, 1), (-1, -2)).reshape(-1, w.shape[0])


def convolve(x: Any, w: Any, *, strides: Any, pads: Any, dilations: Any) -> Any:
    sizes = w.shape[2:]
    last = _padded(x, pads)
    counts = [places(n, k, s, d) for n, k, s, d in zip(last.shape[1:-1], sizes, strides, dilations)]
    out = _columns(last, sizes, strides, dilations) @ _kernel_rows(w)
    return np.moveaxis(out.reshape(x.shape[0], *counts, w.shape[0]), -1, 1)


def convolve_weight(x: Any, g: Any, *, shape: Any, strides: Any, pads: Any, dilations: Any) -> Any:
    sizes = shape[2:]
    columns = _columns(_padded(x, pads), sizes, strides, dilations)
    rows = np.moveaxis(g, 1, -1).reshape(-1, shape[0])
    flat = (columns.T @ rows).reshape(*sizes, shape[1], shape[0])
    return np.moveaxis(flat, (-1, -2), (0, 1))


def convolve_input(g: Any, w: Any, *, shape: Any, strides: Any, pads: Any, dilations: Any) -> Any:
    sizes = w.shape[2:]
    # With stride 1 the adjoint is a convolution with the turned kernel; what was not read needs
    # a border on the far side, and padding beyond the kernel's reach would need a negative one.
    borders = [
        (d * (k - 1) - before, n + before - o)
        for n, o, k, d, (before, _) in zip(shape[2:], g.shape[2:], sizes, dilations, pads)
    ]
    if all(s == 1 for s in strides) and all(a >= 0 and b >= 0 for a, b in borders):
        turned = np.flip(np.swapaxes(w, 0, 1), tuple(range(2, w.ndim)))
        return convolve(g, turned, strides=strides, pads=borders, dilations=dilations)
    padded = bordered_shape(shape[2:], pads)
    rows = np.moveaxis(g, 1, -1)
    taken = rows.reshape(-1, w.shape[0]) @ _kernel_rows(w).T
    taken = np.moveaxis(taken.reshape(*rows.shape[:-1], *sizes, w.shape[1]), -1, 1 + len(sizes))
    out = np.zeros((shape[0], *padded, shape[1]), g.dtype)
    axes = tuple(range(1, 1 + len(sizes)))
    for at, offset in offsets((*taken.shape,), axes, strides, dilations):
        out[at] += taken[(..., *offset)]
    return np.moveaxis(out[(slice(None), *inner(shape[2:], pads))], -1, 1)
