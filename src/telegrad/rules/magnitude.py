"""Magnitudes and signs.

For complex values neither is holomorphic, so their primitives write the conjugate Wirtinger
convention themselves: the vjp is the adjoint of the jvp for the inner product Re(conj(a) b).
"""

from typing import Any

from telegrad.rules.hermitian import is_complex
from telegrad.rules.primitive import ZERO, Primitive, of_slopes


def real_product(xp: Any, a: Any, b: Any) -> Any:
    """Return Re(conj(a) b), element by element; for real values simply the product."""
    if not is_complex(xp, a):
        return a * b
    return xp.real(a) * xp.real(b) + xp.imag(a) * xp.imag(b)


ABS = Primitive(
    "abs",
    saves=("x",),
    vjp=(lambda xp, g, s: g * xp.sign(s.x),),
    jvp=(lambda xp, t, s: real_product(xp, xp.sign(s.x), t),),
    elementwise=True,
    holomorphic=False,
)


def _sign_slope(xp: Any, v: Any, s: Any) -> Any:
    """Move along the unit circle: v without its part along x, over the distance from 0."""
    if not is_complex(xp, s.x):
        return xp.zeros_like(v)
    at_zero = s.x == 0
    distance = xp.where(at_zero, xp.ones_like(xp.real(s.x)), xp.abs(s.x))
    unit = xp.sign(s.x)
    around = (v - unit * real_product(xp, unit, v)) / distance
    return xp.where(at_zero, xp.zeros_like(around), around)


SIGN = Primitive(
    "sign",
    saves=("x",),
    vjp=(_sign_slope,),
    jvp=(_sign_slope,),
    elementwise=True,
    holomorphic=False,
)


def _copysign_slope(xp: Any, v: Any, s: Any) -> Any:
    # At 0 the slope is taken as 0, as in PyTorch.
    return v * xp.sign(s.x) * xp.copysign(xp.ones_like(s.y), s.y)


COPYSIGN = of_slopes("copysign", ("x y", ""), _copysign_slope, ZERO)
