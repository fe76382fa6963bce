"""The share of a normal distribution below each element, for NumPy.

SciPy's function takes 14 ns an element and is exact to the last digit. For many float32 elements,
which networks have (GELU), this module takes 3 ns: for y = |x| the share is

    exp(-y²/2) · p(t),   t = 1 / (1 + 0.26 y)

below -y, and one minus that below y. The polynomial p was fitted (weighted least squares, weights
raised where the error was largest) to half of erfcx(y/√2) for y from 0 to 14.3, beyond which
float32 underflows; it errs by 5e-9 of the value. Rounding makes that 5e-7 for |x| < 3, 4e-6 at 13.
"""

from typing import Any

import numpy as np

from telegrad.arrays.plain.special import scipy_special

__all__ = ["ndtr"]

_MANY = 2048
"""How many float32 elements count as many; fewer are SciPy's."""
_BLOCK = 1 << 16
"""Elements at a time: four arrays of this size stay in the cache."""

_SLOPE = np.float32(0.26)
_ONE = np.float32(1)
_MINUS_HALF = np.float32(-0.5)
_LOWEST, *_MIDDLE, _HIGHEST = map(
    np.float32,
    (
        -7.167429245e-06,
        0.1039066246,
        0.1017153248,
        0.1094820544,
        0.03120630228,
        0.2001198348,
        -0.2008138826,
        0.2909841209,
        -0.1705195253,
        0.03392631631,
    ),
)


def ndtr(x: Any) -> Any:
    if x.dtype != np.float32 or x.size < _MANY:
        return scipy_special().ndtr(x)
    out = np.empty(x.shape, dtype=np.float32)
    values, shares = np.ascontiguousarray(x).reshape(-1), out.reshape(-1)
    for start in range(0, values.size, _BLOCK):
        _fill(values[start : start + _BLOCK], shares[start : start + _BLOCK])
    return out


def _fill(x: Any, out: Any) -> None:
    y = np.abs(x)
    t = y * _SLOPE
    t += _ONE
    np.reciprocal(t, out=t)
    np.multiply(t, _HIGHEST, out=out)
    for coefficient in reversed(_MIDDLE):
        out += coefficient
        out *= t
    out += _LOWEST
    y *= y
    y *= _MINUS_HALF
    out *= np.exp(y, out=y)
    # |p - 1| is 1 - p, without a mask: those cost as much as all the rest.
    out -= (x > 0).astype(np.float32)
    np.abs(out, out=out)
