"""Comparisons, logic and bits: truth values and integers, which have no derivative."""

from telegrad.rules.primitive import NOT_DIFFERENTIABLE, Primitive


def _constant(name: str, *inputs: str) -> Primitive:
    return Primitive(name, vjp=NOT_DIFFERENTIABLE, inputs=inputs, elementwise=True)


EQUAL = _constant("equal", "x", "y")
NOT_EQUAL = _constant("not_equal", "x", "y")
LESS = _constant("less", "x", "y")
LESS_EQUAL = _constant("less_equal", "x", "y")
GREATER = _constant("greater", "x", "y")
GREATER_EQUAL = _constant("greater_equal", "x", "y")
BITWISE_AND = _constant("bitwise_and", "x", "y")
BITWISE_OR = _constant("bitwise_or", "x", "y")
BITWISE_XOR = _constant("bitwise_xor", "x", "y")
BITWISE_LEFT_SHIFT = _constant("bitwise_left_shift", "x", "y")
BITWISE_RIGHT_SHIFT = _constant("bitwise_right_shift", "x", "y")
BITWISE_INVERT = _constant("bitwise_invert", "x")
LOGICAL_AND = _constant("logical_and", "x", "y")
LOGICAL_OR = _constant("logical_or", "x", "y")
LOGICAL_XOR = _constant("logical_xor", "x", "y")
LOGICAL_NOT = _constant("logical_not", "x")
ISFINITE = _constant("isfinite", "x")
ISINF = _constant("isinf", "x")
ISNAN = _constant("isnan", "x")
SIGNBIT = _constant("signbit", "x")
