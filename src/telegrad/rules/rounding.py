"""Rounding: steps, whose slope is zero wherever they have one; and the step to a neighbour."""

from telegrad.rules.primitive import SAME, ZERO, Primitive

CEIL = Primitive("ceil", vjp=(ZERO,), jvp=(ZERO,), elementwise=True)

FLOOR = Primitive("floor", vjp=(ZERO,), jvp=(ZERO,), elementwise=True)

ROUND = Primitive("round", vjp=(ZERO,), jvp=(ZERO,), elementwise=True)

TRUNC = Primitive("trunc", vjp=(ZERO,), jvp=(ZERO,), elementwise=True)

# The neighbour is as far away wherever x is (but for powers of two); y only says on which side.
NEXTAFTER = Primitive("nextafter", vjp=(SAME, ZERO), jvp=(SAME, ZERO), elementwise=True)
