"""Running sums, products and differences along one axis."""

from typing import Any, Never

from telegrad.errors import ShapeError, UsageError
from telegrad.ops.arguments import ArrayLike, Unknown, as_tensor, normalized_axis
from telegrad.ops.concatenation import concat
from telegrad.ops.manipulation import broadcast_to
from telegrad.rules import cumulative as _primitives
from telegrad.rules.primitive import Primitive
from telegrad.tensors import Tensor, apply
from telegrad.tensors.dtypes import as_dtype
from telegrad.tensors.inputs import as_inputs


def _running(
    primitive: Primitive,
    x: ArrayLike,
    axis: int | None,
    dtype: Any,
    include_initial: bool,
    unknown: Unknown,
) -> Tensor:
    x = as_tensor(x, primitive.name, unknown)
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
    """Return the sum of each element and all before it.

    Arguments:
        x: The values.
        axis: The axis to go along; may be left out where there is one.
        dtype: The dtype to compute in and to return; that of x by default.
        include_initial: Whether the result starts with a zero.

    Raises:
        ShapeError: If x has several axes and none is named.

    Examples:
        >>> tg.cumulative_sum(tg.tensor([1, 2, 3]))
        tensor([1, 3, 6])
        >>> tg.cumulative_sum(tg.tensor([1, 2, 3]), include_initial=True)
        tensor([0, 1, 3, 6])
    """
    return _running(_primitives.CUMULATIVE_SUM, x, axis, dtype, include_initial, unknown)


def cumulative_prod(
    x: ArrayLike,
    /,
    axis: int | None = None,
    *,
    dtype: Any = None,
    include_initial: bool = False,
    **unknown: Never,
) -> Tensor:
    """Return the product of each element and all before it.

    The other arguments are those of ``cumulative_sum``.

    Arguments:
        include_initial: Whether the result starts with a one.

    Raises:
        ShapeError: If x has several axes and none is named.

    Examples:
        >>> tg.cumulative_prod(tg.tensor([1, 2, 3]))
        tensor([1, 2, 6])
    """
    return _running(_primitives.CUMULATIVE_PROD, x, axis, dtype, include_initial, unknown)


def diff(
    x: ArrayLike,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: ArrayLike | None = None,
    append: ArrayLike | None = None,
) -> Tensor:
    """Return each element less the one before it, `n` times over.

    Arguments:
        x: The values.
        axis: The axis to go along.
        n: How often to take differences.
        prepend: What comes before x; a number stands for all that lie side by side.
        append: What comes after x, likewise.

    Raises:
        UsageError: If n is negative.

    Examples:
        >>> tg.diff(tg.tensor([1, 4, 9, 16]))
        tensor([3, 5, 7])
        >>> tg.diff(tg.tensor([1, 4, 9, 16]), n=2)
        tensor([2, 2])
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
