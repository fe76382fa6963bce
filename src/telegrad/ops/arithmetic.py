"""Arithmetic, element by element."""

from telegrad.ops.arguments import ArrayLike
from telegrad.rules import arithmetic as _arithmetic
from telegrad.rules import selection as _selection
from telegrad.tensors import Tensor
from telegrad.tensors.hot import binary, unary

__all__ = [
    "add",
    "divide",
    "floor_divide",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "positive",
    "pow",
    "reciprocal",
    "remainder",
    "square",
    "subtract",
]

_negative = unary(_arithmetic.NEGATIVE)
_positive = unary(_arithmetic.POSITIVE)
_reciprocal = unary(_arithmetic.RECIPROCAL)
_square = unary(_arithmetic.SQUARE)
_add = binary(_arithmetic.ADD)
_divide = binary(_arithmetic.DIVIDE)
_floor_divide = binary(_arithmetic.FLOOR_DIVIDE)
_maximum = binary(_selection.MAXIMUM)
_minimum = binary(_selection.MINIMUM)
_multiply = binary(_arithmetic.MULTIPLY)
_pow = binary(_arithmetic.POW)
_remainder = binary(_arithmetic.REMAINDER)
_subtract = binary(_arithmetic.SUBTRACT)


def negative(x: ArrayLike, /) -> Tensor:
    """The negative of each element."""
    return _negative(x)


def positive(x: ArrayLike, /) -> Tensor:
    """Each element as it is."""
    return _positive(x)


def reciprocal(x: ArrayLike, /) -> Tensor:
    """One divided by each element."""
    return _reciprocal(x)


def square(x: ArrayLike, /) -> Tensor:
    """The square of each element."""
    return _square(x)


def add(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The sum, element by element."""
    return _add(x1, x2)


def divide(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The quotient, element by element."""
    return _divide(x1, x2)


def floor_divide(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The quotient rounded down."""
    return _floor_divide(x1, x2)


def maximum(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The larger of each pair."""
    return _maximum(x1, x2)


def minimum(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The smaller of each pair."""
    return _minimum(x1, x2)


def multiply(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The product, element by element."""
    return _multiply(x1, x2)


def pow(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1`` to the power ``x2``, element by element."""
    return _pow(x1, x2)


def remainder(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """What remains of ``floor_divide``; it has the sign of ``x2``."""
    return _remainder(x1, x2)


def subtract(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The difference, element by element."""
    return _subtract(x1, x2)
