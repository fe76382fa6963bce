"""Convolution (correlation, as networks mean it) and its two adjoints, in plain form.

Images have axes (item, channel, place, …), kernels (channel out, channel in, place, …). `strides`,
`pads` and `dilations` have one entry a place axis; `pads` has pairs (before, after). The three
functions are bilinear, and each is an adjoint of the others:
<c, convolve(x, w)> = <convolve_input(c, w), x> = <convolve_weight(x, c), w>.
"""

from math import prod
from typing import Any

from telegrad.arrays.plain.placement import bordered_shape, inner

__all__ = ["convolve", "convolve_input", "convolve_weight"]


def _columns(xp: Any, x: Any, sizes: Any, strides: Any, pads: Any, dilations: Any) -> Any:
    """Return what each place reads: axes (item, place …, channel, place in the kernel …)."""
    x = xp.pad(x, ((0, 0), (0, 0), *pads))
    axes = tuple(range(2, 2 + len(sizes)))
    taken = xp.windows(x, sizes, axes=axes, strides=strides, dilations=dilations)
    return xp.moveaxis(taken, 1, 1 + len(sizes))


def convolve(xp: Any, x: Any, w: Any, *, strides: Any, pads: Any, dilations: Any) -> Any:
    """Return x weighted by the kernel at every place."""
    count = len(strides)
    taken = _columns(xp, x, w.shape[2:], strides, pads, dilations)
    places = taken.shape[: 1 + count]
    rows = xp.reshape(taken, (prod(places), prod(w.shape[1:])))
    out = xp.matmul(rows, xp.reshape(w, (w.shape[0], prod(w.shape[1:]))).mT)
    return xp.moveaxis(xp.reshape(out, (*places, w.shape[0])), -1, 1)


def convolve_input(
    xp: Any, g: Any, w: Any, *, shape: Any, strides: Any, pads: Any, dilations: Any
) -> Any:
    """Return the adjoint of ``convolve`` by x, which has this shape."""
    count = len(strides)
    last = xp.moveaxis(g, 1, -1)
    rows = xp.reshape(last, (prod(last.shape[:-1]), w.shape[0]))
    taken = xp.matmul(rows, xp.reshape(w, (w.shape[0], prod(w.shape[1:]))))
    taken = xp.reshape(taken, (*last.shape[:-1], *w.shape[1:]))
    taken = xp.moveaxis(taken, 1 + count, 1)
    padded = bordered_shape(shape[2:], pads)
    axes = tuple(range(2, 2 + count))
    out = xp.overlap_add(
        taken, (*shape[:2], *padded), axes=axes, strides=strides, dilations=dilations
    )
    return out[(slice(None), slice(None), *inner(shape[2:], pads))]


def convolve_weight(
    xp: Any, x: Any, g: Any, *, shape: Any, strides: Any, pads: Any, dilations: Any
) -> Any:
    """Return the adjoint of ``convolve`` by the kernel, which has this shape."""
    taken = _columns(xp, x, shape[2:], strides, pads, dilations)
    places = prod(taken.shape[: 1 + len(strides)])
    rows = xp.reshape(taken, (places, prod(shape[1:])))
    last = xp.reshape(xp.moveaxis(g, 1, -1), (places, shape[0]))
    return xp.reshape(xp.matmul(last.mT, rows), shape)
