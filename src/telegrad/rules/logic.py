"""Comparisons, logic and bits: results are truth values or integers, which have no derivative."""

from telegrad.rules.primitive import NOT_DIFFERENTIABLE, Primitive


def _row(name: str, *inputs: str) -> Primitive:
    return Primitive(name, vjp=NOT_DIFFERENTIABLE, inputs=inputs, elementwise=True)


EQUAL = _row("equal", "x", "y")
NOT_EQUAL = _row("not_equal", "x", "y")
LESS = _row("less", "x", "y")
LESS_EQUAL = _row("less_equal", "x", "y")
GREATER = _row("greater", "x", "y")
GREATER_EQUAL = _row("greater_equal", "x", "y")
BITWISE_AND = _row("bitwise_and", "x", "y")
BITWISE_OR = _row("bitwise_or", "x", "y")
BITWISE_XOR = _row("bitwise_xor", "x", "y")
BITWISE_LEFT_SHIFT = _row("bitwise_left_shift", "x", "y")
BITWISE_RIGHT_SHIFT = _row("bitwise_right_shift", "x", "y")
BITWISE_INVERT = _row("bitwise_invert", "x")
LOGICAL_AND = _row("logical_and", "x", "y")
LOGICAL_OR = _row("logical_or", "x", "y")
LOGICAL_XOR = _row("logical_xor", "x", "y")
LOGICAL_NOT = _row("logical_not", "x")
ISFINITE = _row("isfinite", "x")
ISINF = _row("isinf", "x")
ISNAN = _row("isnan", "x")
SIGNBIT = _row("signbit", "x")
