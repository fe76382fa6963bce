"""Comparisons: their results are truth values, which have no derivative."""

from telegrad.rules.primitive import NOT_DIFFERENTIABLE, Primitive

__all__ = [
    "EQUAL",
    "GREATER",
    "GREATER_EQUAL",
    "LESS",
    "LESS_EQUAL",
    "NOT_EQUAL",
    "ROWS",
]

EQUAL = Primitive("equal", vjp=NOT_DIFFERENTIABLE, inputs=("x", "y"), elementwise=True)
NOT_EQUAL = Primitive("not_equal", vjp=NOT_DIFFERENTIABLE, inputs=("x", "y"), elementwise=True)
LESS = Primitive("less", vjp=NOT_DIFFERENTIABLE, inputs=("x", "y"), elementwise=True)
LESS_EQUAL = Primitive("less_equal", vjp=NOT_DIFFERENTIABLE, inputs=("x", "y"), elementwise=True)
GREATER = Primitive("greater", vjp=NOT_DIFFERENTIABLE, inputs=("x", "y"), elementwise=True)
GREATER_EQUAL = Primitive(
    "greater_equal", vjp=NOT_DIFFERENTIABLE, inputs=("x", "y"), elementwise=True
)

ROWS = (
    EQUAL,
    NOT_EQUAL,
    LESS,
    LESS_EQUAL,
    GREATER,
    GREATER_EQUAL,
)
