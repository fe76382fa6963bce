"""One direction of one layer of gated recurrent units."""

from telegrad.errors import ShapeError
from telegrad.nn.functional.linear import linear
from telegrad.ops.concatenation import concat
from telegrad.ops.filled import zeros
from telegrad.ops.manipulation import reshape
from telegrad.rules.recurrence import GRU_SCAN
from telegrad.tensors import Tensor, apply_several

__all__ = ["gru_layer"]


def gru_layer(
    input: Tensor,
    first: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None = None,
    bias_hh: Tensor | None = None,
) -> Tensor:
    """All states, (step, item, unit), for an input (step, item, feature) and the first state."""
    length, items, _ = input.shape
    units = weight_hh.shape[1]
    if first.shape != (items, units):
        raise ShapeError(
            f"expected a first state of shape {(items, units)} for input of shape {input.shape} "
            f"and weight_hh of shape {weight_hh.shape}, got {first.shape}"
        )
    steps = linear(input, weight_ih, bias_ih)
    bias = zeros((3 * units,), dtype=weight_hh.dtype) if bias_hh is None else bias_hh
    packed = concat([reshape(part, (-1,)) for part in (steps, first, weight_hh, bias)], axis=0)
    return apply_several(GRU_SCAN, packed, sizes=(length, items, units))[0]
