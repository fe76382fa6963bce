"""Logic and bits: results are truth values or integers, which have no derivative."""

from telegrad.rules.primitive import NOT_DIFFERENTIABLE, Primitive

__all__ = [
    "BITWISE_AND",
    "BITWISE_INVERT",
    "BITWISE_LEFT_SHIFT",
    "BITWISE_OR",
    "BITWISE_RIGHT_SHIFT",
    "BITWISE_XOR",
    "ISFINITE",
    "ISINF",
    "ISNAN",
    "LOGICAL_AND",
    "LOGICAL_NOT",
    "LOGICAL_OR",
    "LOGICAL_XOR",
    "ROWS",
    "SIGNBIT",
]

BITWISE_AND = Primitive("bitwise_and", vjp=NOT_DIFFERENTIABLE, inputs=("x", "y"), elementwise=True)
BITWISE_OR = Primitive("bitwise_or", vjp=NOT_DIFFERENTIABLE, inputs=("x", "y"), elementwise=True)
BITWISE_XOR = Primitive("bitwise_xor", vjp=NOT_DIFFERENTIABLE, inputs=("x", "y"), elementwise=True)
BITWISE_LEFT_SHIFT = Primitive(
    "bitwise_left_shift", vjp=NOT_DIFFERENTIABLE, inputs=("x", "y"), elementwise=True
)
BITWISE_RIGHT_SHIFT = Primitive(
    "bitwise_right_shift", vjp=NOT_DIFFERENTIABLE, inputs=("x", "y"), elementwise=True
)
BITWISE_INVERT = Primitive(
    "bitwise_invert", vjp=NOT_DIFFERENTIABLE, inputs=("x",), elementwise=True
)
LOGICAL_AND = Primitive("logical_and", vjp=NOT_DIFFERENTIABLE, inputs=("x", "y"), elementwise=True)
LOGICAL_OR = Primitive("logical_or", vjp=NOT_DIFFERENTIABLE, inputs=("x", "y"), elementwise=True)
LOGICAL_XOR = Primitive("logical_xor", vjp=NOT_DIFFERENTIABLE, inputs=("x", "y"), elementwise=True)
LOGICAL_NOT = Primitive("logical_not", vjp=NOT_DIFFERENTIABLE, inputs=("x",), elementwise=True)
ISFINITE = Primitive("isfinite", vjp=NOT_DIFFERENTIABLE, inputs=("x",), elementwise=True)
ISINF = Primitive("isinf", vjp=NOT_DIFFERENTIABLE, inputs=("x",), elementwise=True)
ISNAN = Primitive("isnan", vjp=NOT_DIFFERENTIABLE, inputs=("x",), elementwise=True)
SIGNBIT = Primitive("signbit", vjp=NOT_DIFFERENTIABLE, inputs=("x",), elementwise=True)

ROWS = (
    BITWISE_AND,
    BITWISE_OR,
    BITWISE_XOR,
    BITWISE_LEFT_SHIFT,
    BITWISE_RIGHT_SHIFT,
    BITWISE_INVERT,
    LOGICAL_AND,
    LOGICAL_OR,
    LOGICAL_XOR,
    LOGICAL_NOT,
    ISFINITE,
    ISINF,
    ISNAN,
    SIGNBIT,
)
