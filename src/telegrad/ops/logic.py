"""Comparisons, logic and bits, element by element."""
# mypy: disable-error-code="empty-body"

from telegrad.ops.arguments import ArrayLike
from telegrad.ops.elementwise import elementwise
from telegrad.rules import logic as _primitives
from telegrad.tensors import Tensor

__all__ = [
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "equal",
    "greater",
    "greater_equal",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
    "signbit",
]


@elementwise(_primitives.BITWISE_INVERT)
def bitwise_invert(x: ArrayLike, /) -> Tensor:
    """Each element with its bits inverted."""


@elementwise(_primitives.ISFINITE)
def isfinite(x: ArrayLike, /) -> Tensor:
    """Whether each element is finite."""


@elementwise(_primitives.ISINF)
def isinf(x: ArrayLike, /) -> Tensor:
    """Whether each element is infinite."""


@elementwise(_primitives.ISNAN)
def isnan(x: ArrayLike, /) -> Tensor:
    """Whether each element is not a number."""


@elementwise(_primitives.LOGICAL_NOT)
def logical_not(x: ArrayLike, /) -> Tensor:
    """The opposite of each truth value."""


@elementwise(_primitives.SIGNBIT)
def signbit(x: ArrayLike, /) -> Tensor:
    """Whether each element has its sign bit set."""


@elementwise(_primitives.BITWISE_AND)
def bitwise_and(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The bits set in both."""


@elementwise(_primitives.BITWISE_LEFT_SHIFT)
def bitwise_left_shift(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The bits of ``x1`` moved left by ``x2``."""


@elementwise(_primitives.BITWISE_OR)
def bitwise_or(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The bits set in either."""


@elementwise(_primitives.BITWISE_RIGHT_SHIFT)
def bitwise_right_shift(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The bits of ``x1`` moved right by ``x2``."""


@elementwise(_primitives.BITWISE_XOR)
def bitwise_xor(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The bits set in exactly one."""


@elementwise(_primitives.EQUAL)
def equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether the elements are equal."""


@elementwise(_primitives.GREATER)
def greater(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether ``x1 > x2``."""


@elementwise(_primitives.GREATER_EQUAL)
def greater_equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether ``x1 >= x2``."""


@elementwise(_primitives.LESS)
def less(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether ``x1 < x2``."""


@elementwise(_primitives.LESS_EQUAL)
def less_equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether ``x1 <= x2``."""


@elementwise(_primitives.LOGICAL_AND)
def logical_and(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether both are true."""


@elementwise(_primitives.LOGICAL_OR)
def logical_or(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether one is true."""


@elementwise(_primitives.LOGICAL_XOR)
def logical_xor(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether exactly one is true."""


@elementwise(_primitives.NOT_EQUAL)
def not_equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether the elements differ."""
