"""Arithmetic, element by element."""
# mypy: disable-error-code="empty-body"

from telegrad.ops.arguments import ArrayLike
from telegrad.ops.elementwise import elementwise
from telegrad.rules import arithmetic as _arithmetic
from telegrad.rules import selection as _selection
from telegrad.tensors import Tensor

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


@elementwise(_arithmetic.NEGATIVE)
def negative(x: ArrayLike, /) -> Tensor:
    """The negative of each element."""


@elementwise(_arithmetic.POSITIVE)
def positive(x: ArrayLike, /) -> Tensor:
    """Each element as it is."""


@elementwise(_arithmetic.RECIPROCAL)
def reciprocal(x: ArrayLike, /) -> Tensor:
    """One divided by each element."""


@elementwise(_arithmetic.SQUARE)
def square(x: ArrayLike, /) -> Tensor:
    """The square of each element."""


@elementwise(_arithmetic.ADD)
def add(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The sum, element by element."""


@elementwise(_arithmetic.DIVIDE)
def divide(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The quotient, element by element."""


@elementwise(_arithmetic.FLOOR_DIVIDE)
def floor_divide(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The quotient rounded down."""


@elementwise(_selection.MAXIMUM)
def maximum(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The larger of each pair."""


@elementwise(_selection.MINIMUM)
def minimum(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The smaller of each pair."""


@elementwise(_arithmetic.MULTIPLY)
def multiply(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The product, element by element."""


@elementwise(_arithmetic.POW)
def pow(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """``x1`` to the power ``x2``, element by element."""


@elementwise(_arithmetic.REMAINDER)
def remainder(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """What remains of ``floor_divide``; it has the sign of ``x2``."""


@elementwise(_arithmetic.SUBTRACT)
def subtract(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The difference, element by element."""
