"""Comparisons, logic and bits, element by element."""
# mypy: disable-error-code="empty-body"

from telegrad.ops.arguments import ArrayLike
from telegrad.ops.elementwise import elementwise
from telegrad.rules import logic as _primitives
from telegrad.tensors import Tensor


@elementwise(_primitives.BITWISE_INVERT)
def bitwise_invert(x: ArrayLike, /) -> Tensor:
    """Invert the bits of each element.

    Examples:
        >>> tg.bitwise_invert(tg.tensor([0, 1]))
        tensor([-1, -2])
    """


@elementwise(_primitives.ISFINITE)
def isfinite(x: ArrayLike, /) -> Tensor:
    """Say whether each element is finite.

    Examples:
        >>> tg.isfinite(tg.tensor([1.0, tg.inf, tg.nan]))
        tensor([ True, False, False])
    """


@elementwise(_primitives.ISINF)
def isinf(x: ArrayLike, /) -> Tensor:
    """Say whether each element is infinite.

    Examples:
        >>> tg.isinf(tg.tensor([1.0, tg.inf, tg.nan]))
        tensor([False,  True, False])
    """


@elementwise(_primitives.ISNAN)
def isnan(x: ArrayLike, /) -> Tensor:
    """Say whether each element is not a number.

    Examples:
        >>> tg.isnan(tg.tensor([1.0, tg.inf, tg.nan]))
        tensor([False, False,  True])
    """


@elementwise(_primitives.LOGICAL_NOT)
def logical_not(x: ArrayLike, /) -> Tensor:
    """Return the opposite of each truth value.

    Examples:
        >>> tg.logical_not(tg.tensor([True, False]))
        tensor([False,  True])
    """


@elementwise(_primitives.SIGNBIT)
def signbit(x: ArrayLike, /) -> Tensor:
    """Say whether each element has its sign bit set.

    Examples:
        >>> tg.signbit(tg.tensor([1.0, -0.0, -1.0]))
        tensor([False,  True,  True])
    """


@elementwise(_primitives.BITWISE_AND)
def bitwise_and(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return the bits set in both.

    Examples:
        >>> tg.bitwise_and(tg.tensor([5, 6]), 3)
        tensor([1, 2])
    """


@elementwise(_primitives.BITWISE_LEFT_SHIFT)
def bitwise_left_shift(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Move the bits of ``x1`` left by ``x2``.

    Examples:
        >>> tg.bitwise_left_shift(tg.tensor([1, 3]), 2)
        tensor([ 4, 12])
    """


@elementwise(_primitives.BITWISE_OR)
def bitwise_or(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return the bits set in either.

    Examples:
        >>> tg.bitwise_or(tg.tensor([5, 6]), 3)
        tensor([7, 7])
    """


@elementwise(_primitives.BITWISE_RIGHT_SHIFT)
def bitwise_right_shift(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Move the bits of ``x1`` right by ``x2``.

    Examples:
        >>> tg.bitwise_right_shift(tg.tensor([4, 12]), 2)
        tensor([1, 3])
    """


@elementwise(_primitives.BITWISE_XOR)
def bitwise_xor(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return the bits set in exactly one.

    Examples:
        >>> tg.bitwise_xor(tg.tensor([5, 6]), 3)
        tensor([6, 5])
    """


@elementwise(_primitives.EQUAL)
def equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Say whether the elements are equal.

    Examples:
        >>> tg.equal(tg.tensor([1, 2]), tg.tensor([1, 3]))
        tensor([ True, False])
    """


@elementwise(_primitives.GREATER)
def greater(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Say whether ``x1 > x2``, element by element.

    Examples:
        >>> tg.greater(tg.tensor([1, 2, 3]), 2)
        tensor([False, False,  True])
    """


@elementwise(_primitives.GREATER_EQUAL)
def greater_equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Say whether ``x1 >= x2``, element by element.

    Examples:
        >>> tg.greater_equal(tg.tensor([1, 2, 3]), 2)
        tensor([False,  True,  True])
    """


@elementwise(_primitives.LESS)
def less(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Say whether ``x1 < x2``, element by element.

    Examples:
        >>> tg.less(tg.tensor([1, 2, 3]), 2)
        tensor([ True, False, False])
    """


@elementwise(_primitives.LESS_EQUAL)
def less_equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Say whether ``x1 <= x2``, element by element.

    Examples:
        >>> tg.less_equal(tg.tensor([1, 2, 3]), 2)
        tensor([ True,  True, False])
    """


@elementwise(_primitives.LOGICAL_AND)
def logical_and(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Say whether both are true.

    Examples:
        >>> tg.logical_and(tg.tensor([True, True]), tg.tensor([True, False]))
        tensor([ True, False])
    """


@elementwise(_primitives.LOGICAL_OR)
def logical_or(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Say whether at least one is true.

    Examples:
        >>> tg.logical_or(tg.tensor([True, False]), tg.tensor([False, False]))
        tensor([ True, False])
    """


@elementwise(_primitives.LOGICAL_XOR)
def logical_xor(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Say whether exactly one is true.

    Examples:
        >>> tg.logical_xor(tg.tensor([True, True]), tg.tensor([True, False]))
        tensor([False,  True])
    """


@elementwise(_primitives.NOT_EQUAL)
def not_equal(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Say whether the elements differ.

    Examples:
        >>> tg.not_equal(tg.tensor([1, 2]), tg.tensor([1, 3]))
        tensor([False,  True])
    """
