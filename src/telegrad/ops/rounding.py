"""Rounding, element by element."""
# mypy: disable-error-code="empty-body"

from telegrad.ops.arguments import ArrayLike
from telegrad.ops.elementwise import elementwise
from telegrad.rules import rounding as _primitives
from telegrad.tensors import Tensor

__all__ = ["ceil", "floor", "nextafter", "round", "trunc"]


@elementwise(_primitives.CEIL)
def ceil(x: ArrayLike, /) -> Tensor:
    """The smallest whole number that is not below each element."""


@elementwise(_primitives.FLOOR)
def floor(x: ArrayLike, /) -> Tensor:
    """The largest whole number that is not above each element."""


@elementwise(_primitives.ROUND)
def round(x: ArrayLike, /) -> Tensor:
    """The nearest whole number; of two equally near, the even one."""


@elementwise(_primitives.TRUNC)
def trunc(x: ArrayLike, /) -> Tensor:
    """Each element without its fraction."""


@elementwise(_primitives.NEXTAFTER)
def nextafter(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The floating-point number next to each of ``x1`` towards ``x2``; it moves with ``x1``."""
