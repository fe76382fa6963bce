"""Arithmetic of two values, and of one."""

from typing import Any

from telegrad.rules.primitive import LINEAR, SAME, ZERO, Primitive, of_slopes

ADD = Primitive("add", vjp=(SAME, SAME), jvp=(SAME, SAME), elementwise=True)

SUBTRACT = Primitive(
    "subtract",
    vjp=(SAME, lambda xp, g, s: -g),
    jvp=(SAME, lambda xp, t, s: -t),
    elementwise=True,
)

MULTIPLY = Primitive(
    "multiply",
    saves=("y", "x"),
    vjp=(lambda xp, g, s: g * s.y, lambda xp, g, s: g * s.x),
    jvp=(LINEAR, LINEAR),
    elementwise=True,
)

DIVIDE = Primitive(
    "divide",
    saves=("y", "y out"),
    vjp=(lambda xp, g, s: g / s.y, lambda xp, g, s: -g * (s.out / s.y)),
    jvp=(LINEAR, lambda xp, t, s: -t * (s.out / s.y)),
    elementwise=True,
    floating=True,
    poles=True,
)

NEGATIVE = Primitive("negative", vjp=(lambda xp, g, s: -g,), jvp=(LINEAR,), elementwise=True)

POSITIVE = Primitive("positive", vjp=(SAME,), jvp=(SAME,), elementwise=True)

FLOOR_DIVIDE = Primitive("floor_divide", vjp=(ZERO, ZERO), jvp=(ZERO, ZERO), elementwise=True)


def _floored_quotient(xp: Any, s: Any) -> Any:
    """Return ``floor(x / y)``: how often `y` was subtracted from `x`."""
    # For an infinite y that is 0, or -1 where the signs differ; the standard has -0 there.
    beyond = xp.isinf(s.y) & xp.isfinite(s.x)
    return xp.where(beyond, xp.floor(xp.sign(s.x) * xp.sign(s.y) / 2), xp.floor_divide(s.x, s.y))


REMAINDER = of_slopes(
    "remainder", ("", "x y"), SAME, lambda xp, v, s: -v * _floored_quotient(xp, s), floating=False
)

SQUARE = of_slopes("square", ("x",), lambda xp, v, s: v * (s.x + s.x), floating=False)
RECIPROCAL = of_slopes("reciprocal", ("out",), lambda xp, v, s: -v * s.out * s.out, poles=True)


def _pow_by_base(xp: Any, v: Any, s: Any) -> Any:
    # Where the exponent is 0 the slope is 0, also at base 0, where 0 * 0**-1 would be NaN.
    flat = s.y == 0
    power = xp.pow(s.x, xp.where(flat, xp.ones_like(s.y), s.y - 1))
    # y x**(y - 1) is 0 at y = 0, but its derivative by y is 1 / x there: Tensors, on which it may
    # be taken, keep that.
    at_flat = xp.zeros_like(power) if xp.is_numpy else _inverse(xp, s.x)
    return v * (s.y * xp.where(flat, at_flat, power))


def _inverse(xp: Any, x: Any) -> Any:
    """Return ``1 / x``, and 0 where that is not finite."""
    known = xp.isfinite(xp.reciprocal(x))
    safe = xp.where(known, x, xp.ones_like(x))
    return xp.where(known, xp.reciprocal(safe), xp.zeros_like(x))


def _pow_by_exponent(xp: Any, v: Any, s: Any) -> Any:
    # 0**y has slope 0 in y for y >= 0; log(0) would turn it into NaN.
    at_zero = s.x == 0
    base = xp.where(at_zero, xp.ones_like(s.x), s.x)
    if xp.isdtype(s.y.dtype, "complex floating"):
        # A negative real base has a logarithm among complex numbers only.
        log = xp.log(xp.astype(base, s.out.dtype))
        flat = xp.logical_and(xp.imag(s.y) == 0, xp.real(s.y) >= 0)
    else:
        flat = s.y >= 0
        log = xp.log(base)
        log = xp.where(xp.logical_and(at_zero, s.y < 0), xp.full_like(log, -xp.inf), log)
    at_zero = xp.logical_and(at_zero, flat)
    return v * xp.where(at_zero, xp.zeros_like(s.out), s.out * log)


POW = of_slopes(
    "pow", ("x y", "x y out"), _pow_by_base, _pow_by_exponent, floating=False, poles=True
)
