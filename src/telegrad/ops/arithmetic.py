"""Arithmetic, element by element."""
# mypy: disable-error-code="empty-body"

from telegrad.ops.arguments import ArrayLike
from telegrad.ops.elementwise import elementwise
from telegrad.rules import arithmetic as _arithmetic
from telegrad.rules import selection as _selection
from telegrad.tensors import Tensor


@elementwise(_arithmetic.NEGATIVE)
def negative(x: ArrayLike, /) -> Tensor:
    """Return the negative of each element.

    Examples:
        >>> tg.negative(tg.tensor([1.0, -2.0]))
        tensor([-1.,  2.])
    """


@elementwise(_arithmetic.POSITIVE)
def positive(x: ArrayLike, /) -> Tensor:
    """Return each element as it is.

    Examples:
        >>> tg.positive(tg.tensor([1.0, -2.0]))
        tensor([ 1., -2.])
    """


@elementwise(_arithmetic.RECIPROCAL)
def reciprocal(x: ArrayLike, /) -> Tensor:
    """Return one divided by each element.

    Examples:
        >>> tg.reciprocal(tg.tensor([2.0, 4.0]))
        tensor([0.5 , 0.25])
    """


@elementwise(_arithmetic.SQUARE)
def square(x: ArrayLike, /) -> Tensor:
    """Return the square of each element.

    Examples:
        >>> tg.square(tg.tensor([2.0, -3.0]))
        tensor([4., 9.])
    """


@elementwise(_arithmetic.ADD)
def add(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return the sum, element by element.

    Examples:
        >>> tg.add(tg.tensor([1.0, 2.0]), tg.tensor([10.0, 20.0]))
        tensor([11., 22.])
    """


@elementwise(_arithmetic.DIVIDE)
def divide(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return the quotient, element by element.

    Examples:
        >>> tg.divide(tg.tensor([1.0, 2.0]), 4)
        tensor([0.25, 0.5 ])
    """


@elementwise(_arithmetic.FLOOR_DIVIDE)
def floor_divide(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return the quotient, rounded down.

    Examples:
        >>> tg.floor_divide(tg.tensor([7, -7]), 2)
        tensor([ 3, -4])
    """


@elementwise(_selection.MAXIMUM)
def maximum(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return the larger of each pair.

    Examples:
        >>> tg.maximum(tg.tensor([1.0, 5.0]), tg.tensor([3.0, 2.0]))
        tensor([3., 5.])
    """


@elementwise(_selection.MINIMUM)
def minimum(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return the smaller of each pair.

    Examples:
        >>> tg.minimum(tg.tensor([1.0, 5.0]), tg.tensor([3.0, 2.0]))
        tensor([1., 2.])
    """


@elementwise(_arithmetic.MULTIPLY)
def multiply(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return the product, element by element.

    Examples:
        >>> tg.multiply(tg.tensor([1.0, 2.0]), tg.tensor([3.0, 4.0]))
        tensor([3., 8.])
    """


@elementwise(_arithmetic.POW)
def pow(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return ``x1`` to the power ``x2``, element by element.

    Examples:
        >>> tg.pow(tg.tensor([1.0, 2.0, 3.0]), 2)
        tensor([1., 4., 9.])
    """


@elementwise(_arithmetic.REMAINDER)
def remainder(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return what remains of ``floor_divide``; it has the sign of ``x2``.

    Examples:
        >>> tg.remainder(tg.tensor([7, -7]), 3)
        tensor([1, 2])
    """


@elementwise(_arithmetic.SUBTRACT)
def subtract(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return the difference, element by element.

    Examples:
        >>> tg.subtract(tg.tensor([1.0, 2.0]), tg.tensor([10.0, 20.0]))
        tensor([ -9., -18.])
    """
