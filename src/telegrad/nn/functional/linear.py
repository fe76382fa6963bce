"""Affine maps, and rows looked up in a table."""

from typing import Any

import numpy as np

from telegrad.arrays.host import in_host_memory
from telegrad.errors import DTypeError, ShapeError, UsageError
from telegrad.ops.arguments import check_floating
from telegrad.ops.indexing import getitem, index_set
from telegrad.rules.affine import AFFINE, AFFINE_BIASED
from telegrad.tensors import Tensor, apply
from telegrad.tensors.describe import kind_of, way_in


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``input @ weight.T + bias`` over the last axis.

    Arguments:
        input: (…, in).
        weight: (out, in).
        bias: (out,), or None.

    Raises:
        ShapeError: If the shapes don't fit.

    Examples:
        >>> tg.nn.functional.linear(tg.tensor([1.0, 2.0]), tg.tensor([[1.0, 10.0]]))
        tensor([21.])
    """
    try:
        taken, width = weight.array.shape, input.array.shape[-1:]
    except AttributeError:
        raise UsageError(
            f"expected Tensors as input and weight of linear, got {kind_of(input)} and "
            f"{kind_of(weight)}; wrap it in {way_in(input, 'telegrad.tensor')}"
        ) from None
    if input.array.dtype is not weight.array.dtype:
        check_floating(input, "linear")
    if len(taken) != 2:
        raise ShapeError(f"expected weight of shape (out, in) in linear, got {weight.shape}")
    if width != taken[1:]:
        raise ShapeError(
            f"expected an input of shape (…, {taken[-1]}) for weight of shape {tuple(taken)}, got "
            f"shape {input.shape}"
        )
    if bias is None:
        return apply(AFFINE, input, weight)
    if bias.array.shape != taken[:1]:
        raise ShapeError(
            f"expected a bias of shape {tuple(taken[:1])} for weight of shape {tuple(taken)}, got "
            f"shape {bias.shape}"
        )
    return apply(AFFINE_BIASED, input, weight, bias)


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Return the rows of `weight` that the integers name.

    Arguments:
        input: The numbers of the rows.
        weight: (row, feature).
        padding_idx: The row that receives no gradient.

    Raises:
        UsageError: If a number is out of range.
        DTypeError: If they are not integers.

    Examples:
        >>> tg.nn.functional.embedding(tg.tensor([1, 0, 1]), tg.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor([[3., 4.],
                [1., 2.],
                [3., 4.]])
    """
    rows = in_host_memory(input.array) if isinstance(input, Tensor) else np.asarray(input)
    if rows.dtype.kind not in "iu":
        raise DTypeError(f"expected integers as input of embedding, got {rows.dtype}")
    if weight.ndim != 2:
        raise ShapeError(
            f"expected weight of shape (row, feature) in embedding, got {weight.shape}"
        )
    count = weight.shape[0]
    if rows.size and (int(rows.min()) < 0 or int(rows.max()) >= count):
        worst = rows.min() if rows.min() < 0 else rows.max()
        raise UsageError(
            f"expected indices from 0 to {count - 1} for weight of shape {weight.shape} in "
            f"embedding, got {worst}"
        )
    if padding_idx is not None:
        row = checked_padding(padding_idx, count)
        weight = index_set(weight, weight.detach()[row], index=row)
    return getitem(weight, rows)


def checked_padding(padding_idx: Any, count: int) -> int:
    """Return the index of the padding row, from 0."""
    if not -count <= padding_idx < count:
        raise UsageError(f"expected padding_idx within {count} rows, got {padding_idx}")
    return int(padding_idx) % count
