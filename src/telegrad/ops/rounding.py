"""Rounding, element by element."""

from telegrad.ops.arguments import ArrayLike
from telegrad.rules import rounding as _rows
from telegrad.tensors import Tensor, apply
from telegrad.tensors.hot import unary

__all__ = ["ceil", "floor", "nextafter", "round", "trunc"]

_ceil = unary(_rows.CEIL)
_floor = unary(_rows.FLOOR)
_round = unary(_rows.ROUND)
_trunc = unary(_rows.TRUNC)


def ceil(x: ArrayLike, /) -> Tensor:
    """The smallest whole number that is not below each element."""
    return _ceil(x)


def floor(x: ArrayLike, /) -> Tensor:
    """The largest whole number that is not above each element."""
    return _floor(x)


def round(x: ArrayLike, /) -> Tensor:
    """The nearest whole number; of two equally near, the even one."""
    return _round(x)


def trunc(x: ArrayLike, /) -> Tensor:
    """Each element without its fraction."""
    return _trunc(x)


def nextafter(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The floating-point number next to each of ``x1`` towards ``x2``; it moves with ``x1``."""
    return apply(_rows.NEXTAFTER, x1, x2)  # type: ignore[no-any-return]
