"""A layer of gated recurrent units, in one direction."""

from telegrad.errors import ShapeError
from telegrad.nn.functional.linear import linear
from telegrad.ops.concatenation import concat
from telegrad.ops.filled import zeros
from telegrad.ops.manipulation import reshape
from telegrad.rules.recurrence import GRU_SCAN
from telegrad.tensors import Tensor, apply_several


def gru_layer(
    input: Tensor,
    first: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None = None,
    bias_hh: Tensor | None = None,
) -> Tensor:
    """Return all states of one layer of gated recurrent units over a sequence.

    Arguments:
        input: (step, item, feature).
        first: The state before the first step, (item, unit).
        weight_ih: (3 units, feature), for the three gates.
        weight_hh: (3 units, unit).
        bias_ih: (3 units,), or None.
        bias_hh: (3 units,), or None.

    Returns:
        The states, (step, item, unit).

    Raises:
        ShapeError: If the first state does not fit.

    Examples:
        >>> gru_layer = tg.nn.functional.gru_layer
        >>> gru_layer(tg.ones(5, 1, 2), tg.zeros(1, 3), tg.ones(9, 2), tg.ones(9, 3)).shape
        (5, 1, 3)
    """
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
