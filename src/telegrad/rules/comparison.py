"""Comparisons: their results are truth values, which have no derivative."""

from telegrad.rules.primitive import NOT_DIFFERENTIABLE, Primitive

__all__ = ["EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL"]


def _row(name: str) -> Primitive:
    return Primitive(name, vjp=NOT_DIFFERENTIABLE, inputs=("x", "y"), elementwise=True)


EQUAL = _row("equal")
NOT_EQUAL = _row("not_equal")
LESS = _row("less")
LESS_EQUAL = _row("less_equal")
GREATER = _row("greater")
GREATER_EQUAL = _row("greater_equal")
