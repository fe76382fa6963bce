"""The layer of nearly every network: ``x @ weight^T + bias`` over the last axis.

One primitive instead of a product, a transposition and a sum: the leading axes are folded into one,
so that each direction is a single matrix product.
"""

from math import prod
from typing import Any

from telegrad.rules.primitive import SAME, Primitive


def _rows(xp: Any, x: Any) -> Any:
    """Fold all axes but the last into one."""
    shape = x.shape
    return x if len(shape) == 2 else xp.reshape(x, (prod(shape[:-1]), shape[-1]))


def _affine(xp: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    out = xp.matrix_product(_rows(xp, x), weight.mT)
    if bias is not None:
        if xp.is_numpy and out.dtype == bias.dtype:
            xp.add_to_rows(out, bias)
        else:
            out = out + bias
    return out if len(x.shape) == 2 else xp.reshape(out, (*x.shape[:-1], weight.shape[0]))


def _by_input(xp: Any, g: Any, s: Any) -> Any:
    return xp.reshape(xp.matrix_product(_rows(xp, g), s.weight), s.x_shape)


def _by_weight(xp: Any, g: Any, s: Any) -> Any:
    return xp.matrix_product(_rows(xp, g).mT, _rows(xp, s.x))


def _by_bias(xp: Any, g: Any, s: Any) -> Any:
    rows = _rows(xp, g)
    return xp.column_sums(rows) if xp.is_numpy else xp.sum(rows, axis=0)


def _along_input(xp: Any, t: Any, s: Any) -> Any:
    return xp.matmul(t, s.weight.mT)


def _along_weight(xp: Any, t: Any, s: Any) -> Any:
    return xp.matmul(s.x, t.mT)


AFFINE = Primitive(
    "affine",
    forward=_affine,
    inputs=("x", "weight"),
    saves=("weight x.shape", "x"),
    vjp=(_by_input, _by_weight),
    jvp=(_along_input, _along_weight),
)

AFFINE_BIASED = Primitive(
    "affine_biased",
    forward=_affine,
    inputs=("x", "weight", "bias"),
    saves=("weight x.shape", "x", ""),
    vjp=(_by_input, _by_weight, _by_bias),
    jvp=(_along_input, _along_weight, SAME),
)
