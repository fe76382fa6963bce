"""Pooling of Tensors and its adjoints, as the rules need them; users take ``nn``'s."""

from typing import Any

from telegrad.rules import pooling as _rows
from telegrad.tensors import Tensor, apply

__all__ = ["pool_max", "pool_put", "pool_spread", "pool_sum", "pool_take"]


def pool_max(x: Tensor, **how: Any) -> tuple[Tensor, Tensor]:
    """The largest element of each window, and which one it was."""
    return apply(_rows.POOL_MAX, x, **how)  # type: ignore[no-any-return]


def pool_take(x: Tensor, which: Tensor, **how: Any) -> Tensor:
    """The element of each window that `which` names."""
    return apply(_rows.POOL_TAKE, x, which, **how)  # type: ignore[no-any-return]


def pool_put(g: Tensor, which: Tensor, *, shape: tuple[int, ...], **how: Any) -> Tensor:
    """The adjoint of ``pool_take``."""
    return apply(_rows.POOL_PUT, g, which, shape=shape, **how)  # type: ignore[no-any-return]


def pool_sum(x: Tensor, **how: Any) -> Tensor:
    """The sum of each window."""
    return apply(_rows.POOL_SUM, x, **how)  # type: ignore[no-any-return]


def pool_spread(g: Tensor, *, shape: tuple[int, ...], **how: Any) -> Tensor:
    """The adjoint of ``pool_sum``."""
    return apply(_rows.POOL_SPREAD, g, shape=shape, **how)  # type: ignore[no-any-return]
