"""Running sums, products and differences along one axis."""

from typing import Any, Never

from telegrad.errors import ShapeError, UsageError
from telegrad.ops.arguments import ArrayLike, as_dtype, as_tensor, normalized_axis
from telegrad.ops.concatenation import concat
from telegrad.ops.manipulation import broadcast_to
from telegrad.rules import cumulative as _primitives
from telegrad.rules.primitive import Primitive
from telegrad.tensors import Tensor, apply
from telegrad.tensors.inputs import as_inputs
from telegrad.tensors.torch_hints import unexpected

__all__ = ["cumulative_prod", "cumulative_sum", "diff"]


def _running(
    primitive: Primitive, x: ArrayLike, axis: int | None, dtype: Any, include_initial: bool
) -> Tensor:
    x = as_tensor(x, primitive.name)
    if axis is None:
        if x.ndim != 1:
            raise ShapeError(
                f"expected one axis, or the axis to run along, in {primitive.name}, got shape "
                f"{x.shape}"
            )
        axis = 0
    axis = normalized_axis(axis, x.ndim, primitive.name)
    if dtype is not None:
        dtype = as_dtype(dtype)
        x = x.to(dtype)
    result = apply(primitive, x, axis=axis, include_initial=include_initial)
    return result if dtype is None else result.to(dtype)


def cumulative_sum(
    x: ArrayLike,
    /,
    axis: int | None = None,
    *,
    dtype: Any = None,
    include_initial: bool = False,
    **unknown: Never,
) -> Tensor:
    """The sum of each element and all before it; `include_initial` starts with a zero."""
    if unknown:
        raise unexpected("cumulative_sum", unknown)
    return _running(_primitives.CUMULATIVE_SUM, x, axis, dtype, include_initial)


def cumulative_prod(
    x: ArrayLike,
    /,
    axis: int | None = None,
    *,
    dtype: Any = None,
    include_initial: bool = False,
    **unknown: Never,
) -> Tensor:
    """The product of each element and all before it; `include_initial` starts with a one."""
    if unknown:
        raise unexpected("cumulative_prod", unknown)
    return _running(_primitives.CUMULATIVE_PROD, x, axis, dtype, include_initial)


def diff(
    x: ArrayLike,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: ArrayLike | None = None,
    append: ArrayLike | None = None,
) -> Tensor:
    """Each element less the one before it, `n` times over.

    What comes first and last may be numbers: each then stands for all that lie side by side.
    """
    if n < 0:
        raise UsageError(f"expected how often to take differences, 0 or more, got n={n}")
    x = as_tensor(x, "diff")
    axis = normalized_axis(axis, x.ndim, "diff")
    if n == 0:
        return x  # type: ignore[no-any-return]
    given = [part for part in (prepend, x, append) if part is not None]
    if len(given) > 1:
        layer = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
        parts = as_inputs("diff", given)
        x = concat([part if part.ndim else broadcast_to(part, layer) for part in parts], axis=axis)
    before = (slice(None),) * axis
    for _ in range(n):
        later, earlier = x[(*before, slice(1, None))], x[(*before, slice(0, -1))]
        x = later != earlier if x.dtype.kind == "b" else later - earlier
    return x  # type: ignore[no-any-return]
