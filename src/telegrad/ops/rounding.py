"""Rounding, element by element."""
# mypy: disable-error-code="empty-body"

from telegrad.ops.arguments import ArrayLike
from telegrad.ops.elementwise import elementwise
from telegrad.rules import rounding as _primitives
from telegrad.tensors import Tensor


@elementwise(_primitives.CEIL)
def ceil(x: ArrayLike, /) -> Tensor:
    """Return the smallest whole number that is not below each element.

    Examples:
        >>> tg.ceil(tg.tensor([-1.5, 1.5]))
        tensor([-1.,  2.])
    """


@elementwise(_primitives.FLOOR)
def floor(x: ArrayLike, /) -> Tensor:
    """Return the largest whole number that is not above each element.

    Examples:
        >>> tg.floor(tg.tensor([-1.5, 1.5]))
        tensor([-2.,  1.])
    """


@elementwise(_primitives.ROUND)
def round(x: ArrayLike, /) -> Tensor:
    """Return the nearest whole number; of two equally near, the even one.

    Examples:
        >>> tg.round(tg.tensor([0.5, 1.5, 1.7]))
        tensor([0., 2., 2.])
    """


@elementwise(_primitives.TRUNC)
def trunc(x: ArrayLike, /) -> Tensor:
    """Return each element without its fraction.

    Examples:
        >>> tg.trunc(tg.tensor([-1.5, 1.5]))
        tensor([-1.,  1.])
    """


@elementwise(_primitives.NEXTAFTER)
def nextafter(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return the floating-point number next to each of ``x1`` towards ``x2``; it moves with ``x1``.

    Examples:
        >>> float(tg.nextafter(tg.tensor(1.0, dtype=tg.float64), 2.0))
        1.0000000000000002
    """
