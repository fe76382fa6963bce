"""GELU and its slope at once, as NumPy does them best: both are made of the same two functions.

GELU is x Φ(x), with Φ the share of a normal distribution below x, and its slope Φ(x) + x φ(x), with
φ the density. For many float32 elements, with y = |x|, the share below -y is

    exp(-y²/2) · p(t),   t = 1 / (1 + 0.31 y)

and one minus that is the share below y; so both come of one exponential. The polynomial p was
fitted (least squares, weights raised where the error was largest) to make Φ err by at most 2e-8, a
third of a rounding near 1. Far below zero that is much of the little that is left, as it is in
``x * 0.5 * (1 + erf(x / √2))``; ``numpy_ndtr.py`` takes longer and is exact there too.
"""

import math
from typing import Any

import numpy as np

from telegrad.arrays.numpy_ndtr import ndtr
from telegrad.arrays.scratch import scratch

__all__ = ["OVERRIDES"]

_MANY = 2048
_BLOCK = 1 << 16
"""Elements at a time: four arrays of this size stay in the cache."""

_DENSITY_AT_0 = 1 / math.sqrt(2 * math.pi)
_SLOPE = np.float32(0.31)
_ONE = np.float32(1)
_MINUS_HALF = np.float32(-0.5)
_LOWEST, *_MIDDLE, _HIGHEST = map(
    np.float32,
    (
        0.009590679518,
        0.04181491323,
        0.4115931138,
        -0.414664639,
        0.592424624,
        -0.1407586727,
    ),
)


def gelu_with_slope(x: Any) -> tuple[Any, Any]:
    if x.dtype != np.float32 or x.size < _MANY:
        share = ndtr(x)
        return x * share, share + x * np.exp(x * x * -0.5) * _DENSITY_AT_0
    value, slope = np.empty(x.shape, np.float32), np.empty(x.shape, np.float32)
    given, values, slopes = (
        np.ascontiguousarray(x).reshape(-1),
        value.reshape(-1),
        slope.reshape(-1),
    )
    work = scratch("gelu", 2 * _BLOCK, value.dtype).reshape(2, _BLOCK)
    for start in range(0, given.size, _BLOCK):
        block = given[start : start + _BLOCK]
        end = start + block.size
        _fill(block, values[start:end], slopes[start:end], *work[:, : block.size])
    return value, slope


def _fill(x: Any, value: Any, slope: Any, bell: Any, work: Any) -> None:
    np.abs(x, out=work)
    work *= _SLOPE
    work += _ONE
    np.reciprocal(work, out=work)
    share = np.multiply(work, _HIGHEST, out=slope)
    for coefficient in reversed(_MIDDLE):
        share += coefficient
        share *= work
    share += _LOWEST
    np.multiply(x, x, out=bell)
    bell *= _MINUS_HALF
    np.exp(bell, out=bell)
    share *= bell
    # |p - 1| is 1 - p, without a mask: those cost as much as all the rest.
    np.copyto(work, x > 0)
    share -= work
    np.abs(share, out=share)
    np.multiply(x, share, out=value)
    bell *= x
    bell *= np.float32(_DENSITY_AT_0)
    slope += bell


OVERRIDES: dict[str, Any] = {"gelu_with_slope": gelu_with_slope}
