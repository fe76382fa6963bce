"""Comparisons, logic and bits, element by element."""

from telegrad.ops.arguments import ArrayLike
from telegrad.rules import comparison as _comparison
from telegrad.rules import logic as _logic
from telegrad.tensors import Tensor
from telegrad.tensors.hot import binary, unary

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

_bitwise_invert = unary(_logic.BITWISE_INVERT)
_isfinite = unary(_logic.ISFINITE)
_isinf = unary(_logic.ISINF)
_isnan = unary(_logic.ISNAN)
_logical_not = unary(_logic.LOGICAL_NOT)
_signbit = unary(_logic.SIGNBIT)
_bitwise_and = binary(_logic.BITWISE_AND)
_bitwise_left_shift = binary(_logic.BITWISE_LEFT_SHIFT)
_bitwise_or = binary(_logic.BITWISE_OR)
_bitwise_right_shift = binary(_logic.BITWISE_RIGHT_SHIFT)
_bitwise_xor = binary(_logic.BITWISE_XOR)
_equal = binary(_comparison.EQUAL)
_greater = binary(_comparison.GREATER)
_greater_equal = binary(_comparison.GREATER_EQUAL)
_less = binary(_comparison.LESS)
_less_equal = binary(_comparison.LESS_EQUAL)
_logical_and = binary(_logic.LOGICAL_AND)
_logical_or = binary(_logic.LOGICAL_OR)
_logical_xor = binary(_logic.LOGICAL_XOR)
_not_equal = binary(_comparison.NOT_EQUAL)


def bitwise_invert(x: ArrayLike, /) -> Tensor:
    """Each element with its bits inverted."""
    return _bitwise_invert(x)


def isfinite(x: ArrayLike, /) -> Tensor:
    """Whether each element is finite."""
    return _isfinite(x)


def isinf(x: ArrayLike, /) -> Tensor:
    """Whether each element is infinite."""
    return _isinf(x)


def isnan(x: ArrayLike, /) -> Tensor:
    """Whether each element is not a number."""
    return _isnan(x)


def logical_not(x: ArrayLike, /) -> Tensor:
    """The opposite of each truth value."""
    return _logical_not(x)


def signbit(x: ArrayLike, /) -> Tensor:
    """Whether each element has its sign bit set."""
    return _signbit(x)


def bitwise_and(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The bits set in both."""
    return _bitwise_and(x1, x2)


def bitwise_left_shift(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The bits of ``x1`` moved left by ``x2``."""
    return _bitwise_left_shift(x1, x2)


def bitwise_or(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The bits set in either."""
    return _bitwise_or(x1, x2)


def bitwise_right_shift(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The bits of ``x1`` moved right by ``x2``."""
    return _bitwise_right_shift(x1, x2)


def bitwise_xor(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The bits set in exactly one."""
    return _bitwise_xor(x1, x2)


def equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether the elements are equal."""
    return _equal(x1, x2)


def greater(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether ``x1 > x2``."""
    return _greater(x1, x2)


def greater_equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether ``x1 >= x2``."""
    return _greater_equal(x1, x2)


def less(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether ``x1 < x2``."""
    return _less(x1, x2)


def less_equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether ``x1 <= x2``."""
    return _less_equal(x1, x2)


def logical_and(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether both are true."""
    return _logical_and(x1, x2)


def logical_or(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether one is true."""
    return _logical_or(x1, x2)


def logical_xor(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether exactly one is true."""
    return _logical_xor(x1, x2)


def not_equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Whether the elements differ."""
    return _not_equal(x1, x2)
