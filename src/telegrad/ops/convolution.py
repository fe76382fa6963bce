"""Convolution of Tensors with its two adjoints, as the rules need them; users take ``nn``'s."""

from typing import Any

from telegrad.rules import convolution as _rows
from telegrad.tensors import Tensor, apply

__all__ = ["convolve", "convolve_input", "convolve_weight"]


def convolve(x: Tensor, w: Tensor, **how: Any) -> Tensor:
    """x (item, channel, place …) weighted by the kernel (channel out, channel in, place …)."""
    return apply(_rows.CONVOLVE, x, w, **how)  # type: ignore[no-any-return]


def convolve_input(g: Tensor, w: Tensor, *, shape: tuple[int, ...], **how: Any) -> Tensor:
    """The adjoint of ``convolve`` by x, which has this shape."""
    return apply(_rows.CONVOLVE_INPUT, g, w, shape=shape, **how)  # type: ignore[no-any-return]


def convolve_weight(x: Tensor, g: Tensor, *, shape: tuple[int, ...], **how: Any) -> Tensor:
    """The adjoint of ``convolve`` by the kernel, which has this shape."""
    return apply(_rows.CONVOLVE_WEIGHT, x, g, shape=shape, **how)  # type: ignore[no-any-return]
