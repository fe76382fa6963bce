"""Joining tensors, and taking them apart again."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Never

from telegrad.errors import ShapeError
from telegrad.ops.arguments import ArrayLike, Unknown, as_tensor, normalized_axis, promoted
from telegrad.ops.manipulation import reshape
from telegrad.rules.concatenation import concat_of, stack_of, unstack_of
from telegrad.tensors import Tensor, apply, apply_several
from telegrad.tensors.torch_hints import unexpected

_AT_ONCE = 256
"""How many layers one node gives; the time to sum their cotangents grows with its square."""


def concat(arrays: Sequence[ArrayLike], /, axis: int | None = 0, **unknown: Never) -> Tensor:
    """Join tensors one after the other along an axis.

    Arguments:
        arrays: The tensors, at least one; their shapes are equal up to that axis.
        axis: The axis to join along; with None each tensor is flattened first.

    Raises:
        ShapeError: If there is no tensor, one has no axes, or the shapes don't fit.

    Examples:
        >>> tg.concat([tg.tensor([1, 2]), tg.tensor([3])])
        tensor([1, 2, 3])
    """
    parts = _parts(arrays, "concat", unknown)
    if axis is None:
        parts, axis = [reshape(x, (-1,)) for x in parts], 0
    first = parts[0].shape
    if not first:
        raise ShapeError("expected tensors with axes in concat, got a 0-d tensor; use stack")
    axis = normalized_axis(axis, len(first), "concat")
    for x in parts[1:]:
        if x.ndim != len(first) or any(
            a != b for i, (a, b) in enumerate(zip(first, x.shape)) if i != axis
        ):
            raise ShapeError(
                f"expected equal shapes up to axis {axis} in concat, got {first} and {x.shape}"
            )
    bounds = tuple(accumulate(x.shape[axis] for x in parts))
    return apply(concat_of(len(parts)), *parts, axis=axis, bounds=bounds)


def stack(arrays: Sequence[ArrayLike], /, axis: int = 0, **unknown: Never) -> Tensor:
    """Join tensors of one shape along a new axis.

    Arguments:
        arrays: The tensors, at least one.
        axis: Where the new axis is in the result.

    Raises:
        ShapeError: If there is no tensor, or the shapes differ.

    Examples:
        >>> tg.stack([tg.tensor([1, 2]), tg.tensor([3, 4])])
        tensor([[1, 2],
                [3, 4]])
    """
    parts = _parts(arrays, "stack", unknown)
    for x in parts[1:]:
        if x.shape != parts[0].shape:
            raise ShapeError(f"expected equal shapes in stack, got {parts[0].shape} and {x.shape}")
    axis = normalized_axis(axis, parts[0].ndim + 1, "stack")
    return apply(stack_of(len(parts)), *parts, axis=axis)


def unstack(x: ArrayLike, /, axis: int = 0, **unknown: Never) -> tuple[Tensor, ...]:
    """Return the layers of a tensor along an axis, which they no longer have.

    Arguments:
        x: The values.
        axis: The axis to go along.

    Examples:
        >>> tg.unstack(tg.tensor([[1, 2], [3, 4]]))
        (tensor([1, 2]), tensor([3, 4]))
    """
    x = as_tensor(x, "unstack", unknown)
    axis = normalized_axis(axis, x.ndim, "unstack")
    count = x.shape[axis]
    before = (slice(None),) * axis
    if not (x.requires_grad or x.is_dual):
        return tuple(x[(*before, i)] for i in range(count))
    layers: list[Tensor] = []
    for start in range(0, count, _AT_ONCE):
        end = min(start + _AT_ONCE, count)
        part = x if end - start == count else x[(*before, slice(start, end))]
        layers.extend(apply_several(unstack_of(end - start), part, axis=axis))
    return tuple(layers)


def _parts(arrays: Sequence[ArrayLike], name: str, unknown: Unknown) -> list[Tensor]:
    if unknown:
        raise unexpected(name, unknown)
    listed = list(arrays)
    if not listed:
        raise ShapeError(f"expected at least one tensor in {name}, got an empty sequence")
    return promoted(name, listed)
