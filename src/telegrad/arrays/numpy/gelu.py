"""GELU and its slope at once, as NumPy does them best: both are made of the same two functions.

GELU is x Φ(x), with Φ the share of a normal distribution below x, and its slope Φ(x) + x φ(x), with
φ the density. For many float32 elements, with y = |x|, the share below -y is

    exp(-y²/2) · f(y),   f(y) = c + p / (y + q + r / (y + s + t / (y + u)))

and one minus that is the share below y; so both come of one exponential. A division costs little
more than a product here, so the fraction takes fewer passes than a polynomial as exact. It was
fitted (least squares, weights raised where the error was largest) to make Φ err by at most 1e-8, a
sixth of a rounding near 1. Far below zero that is much of the little that is left, as it is in
``x * 0.5 * (1 + erf(x / √2))``; ``ndtr.py`` takes longer and is exact there too.
"""

import math
from typing import Any

import numpy as np

from telegrad.arrays.numpy.ndtr import ndtr
from telegrad.arrays.numpy.powers import quickest_power
from telegrad.arrays.scratch import scratch

__all__ = ["gelu_with_slope"]

_MANY = 2048
"""How many float32 elements count as many; fewer are SciPy's."""
_BLOCK = 1 << 16
"""Elements at a time: four arrays of this size stay in the cache."""

_DENSITY_AT_0 = 1 / math.sqrt(2 * math.pi)
_HALF = np.float32(0.5)
_SIGN = np.int32(-(1 << 31))
_C, _P, _Q, _R, _S, _T, _U = map(
    np.float32,
    (
        -0.001804697907,
        0.4364658855,
        0.8937026082,
        -4.469089025,
        5.160022217,
        13.69199216,
        0.07533388886,
    ),
)


def gelu_with_slope(x: Any) -> tuple[Any, Any]:
    if x.dtype != np.float32 or x.size < _MANY:
        share = ndtr(x)
        return x * share, share + x * np.exp(x * x * -0.5) * _DENSITY_AT_0
    value, slope = np.empty(x.shape, np.float32), np.empty(x.shape, np.float32)
    given = np.ascontiguousarray(x).reshape(-1)
    values, slopes = value.reshape(-1), slope.reshape(-1)
    work = scratch("gelu", _BLOCK, value.dtype)
    for start in range(0, given.size, _BLOCK):
        block = given[start : start + _BLOCK]
        end = start + block.size
        _fill(block, values[start:end], slopes[start:end], work[: block.size])
    return value, slope


def _fill(x: Any, value: Any, slope: Any, work: Any) -> None:
    """Fill in both results; until they are there, their memory serves for the work in between."""
    power, unit = quickest_power(x.dtype)
    y = np.abs(x, out=work)
    share = np.add(y, _U, out=slope)
    np.divide(_T, share, out=share)
    share += y
    share += _S
    np.divide(_R, share, out=share)
    share += y
    share += _Q
    np.divide(_P, share, out=share)
    share += _C
    bell = np.square(x, out=value)
    bell *= np.float32(-0.5 * unit)
    power(bell, out=bell)
    share *= bell
    # Less than a half by as much as the share below |x| is more; which it is, x's sign bit says.
    np.subtract(_HALF, share, out=share)
    signs, bits = work.view(np.int32), share.view(np.int32)
    np.bitwise_and(x.view(np.int32), _SIGN, out=signs)
    bits ^= signs
    share += _HALF
    np.multiply(bell, x, out=work)
    np.multiply(x, share, out=value)
    work *= np.float32(_DENSITY_AT_0)
    slope += work
