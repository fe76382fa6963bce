"""Rounding: steps, whose slope is zero wherever they have one."""

from telegrad.rules.primitive import NOT_DIFFERENTIABLE, ZERO, Primitive

__all__ = ["CEIL", "FLOOR", "NEXTAFTER", "ROUND", "ROWS", "STEP", "TRUNC"]

CEIL = Primitive("ceil", vjp=(ZERO,), jvp=(ZERO,), elementwise=True)

FLOOR = Primitive("floor", vjp=(ZERO,), jvp=(ZERO,), elementwise=True)

ROUND = Primitive("round", vjp=(ZERO,), jvp=(ZERO,), elementwise=True)

TRUNC = Primitive("trunc", vjp=(ZERO,), jvp=(ZERO,), elementwise=True)

# Beyond the standard: 1 where positive, else 0. A slope made with it can be differentiated again,
# and gives zero; one made with a comparison would be a constant.
STEP = Primitive("step", vjp=(ZERO,), jvp=(ZERO,), elementwise=True)

# A step to a neighbour in the floating-point grid: a statement about the grid, not about numbers.
NEXTAFTER = Primitive("nextafter", vjp=NOT_DIFFERENTIABLE, inputs=("x", "y"), elementwise=True)

ROWS = (CEIL, FLOOR, ROUND, TRUNC, STEP, NEXTAFTER)
