"""Convolution of Tensors with its two adjoints, as the rules need them; users take ``nn``'s."""

from collections.abc import Sequence
from typing import TypeAlias

from telegrad.rules import convolution as _rows
from telegrad.tensors import Tensor, apply

__all__ = ["convolve", "convolve_input", "convolve_weight"]

Lengths: TypeAlias = tuple[int, ...]
Pads: TypeAlias = Sequence[tuple[int, int]]


def convolve(x: Tensor, w: Tensor, *, strides: Lengths, pads: Pads, dilations: Lengths) -> Tensor:
    """x (item, channel, place …) weighted by the kernel (channel out, channel in, place …)."""
    return apply(_rows.CONVOLVE, x, w, strides=strides, pads=pads, dilations=dilations)  # type: ignore[no-any-return]


def convolve_input(
    g: Tensor, w: Tensor, *, shape: Lengths, strides: Lengths, pads: Pads, dilations: Lengths
) -> Tensor:
    """The adjoint of ``convolve`` by x, which has this shape."""
    how = {"shape": shape, "strides": strides, "pads": pads, "dilations": dilations}
    return apply(_rows.CONVOLVE_INPUT, g, w, **how)  # type: ignore[no-any-return]


def convolve_weight(
    x: Tensor, g: Tensor, *, shape: Lengths, strides: Lengths, pads: Pads, dilations: Lengths
) -> Tensor:
    """The adjoint of ``convolve`` by the kernel, which has this shape."""
    how = {"shape": shape, "strides": strides, "pads": pads, "dilations": dilations}
    return apply(_rows.CONVOLVE_WEIGHT, x, g, **how)  # type: ignore[no-any-return]
