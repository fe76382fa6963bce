"""Products of matrices and vectors, and the diagonals of matrices."""

from collections.abc import Sequence
from string import ascii_letters
from typing import Any

from telegrad.errors import ShapeError
from telegrad.ops.arguments import ArrayLike, as_matrix, as_tensor, normalized_axes, promoted
from telegrad.ops.filled import zeros
from telegrad.ops.indexing import index_set
from telegrad.ops.manipulation import astype, reshape
from telegrad.rules import contraction as _contraction
from telegrad.rules import products as _primitives
from telegrad.tensors import Tensor, apply
from telegrad.tensors.recording.fast_paths import product

_matrix_product = product(_primitives.MATRIX_PRODUCT)


def matmul(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return the product of matrices, or of stacks of matrices; vectors count as one row or column.

    Raises:
        ShapeError: If the inner lengths differ, or one of the two has no axes.

    Examples:
        >>> tg.matmul(tg.tensor([[1.0, 2.0], [3.0, 4.0]]), tg.tensor([1.0, 10.0]))
        tensor([21., 43.])
    """
    if isinstance(x1, Tensor) and isinstance(x2, Tensor):
        made = _matrix_product(x1, x2)
        if made is not None:
            return made
        if x1.dtype == x2.dtype:
            return apply(_primitives.MATMUL, x1, x2)
    x1, x2 = promoted("matmul", (x1, x2))
    return apply(_primitives.MATMUL, x1, x2)


def matrix_transpose(x: ArrayLike, /) -> Tensor:
    """Return the matrices with their last two axes exchanged.

    Examples:
        >>> tg.matrix_transpose(tg.tensor([[1, 2], [3, 4]]))
        tensor([[1, 3],
                [2, 4]])
    """
    return apply(_primitives.MATRIX_TRANSPOSE, as_matrix(x, "matrix_transpose"))


def tensordot(
    x1: ArrayLike, x2: ArrayLike, /, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Tensor:
    """Return the sum of products over pairs of axes.

    Arguments:
        x1: The first factor.
        x2: The second factor.
        axes: How many of the last axes of x1 go with the first ones of x2, or which go with which,
            as two sequences.

    Raises:
        ShapeError: If paired axes differ in length, or are not there.

    Examples:
        >>> tg.tensordot(tg.ones(2, 3), tg.ones(3, 2), axes=1)
        tensor([[3., 3.],
                [3., 3.]])
    """
    x1, x2 = promoted("tensordot", (x1, x2))
    left, right = _paired_axes(x1, x2, axes)
    for a, b in zip(left, right, strict=True):
        if x1.shape[a] != x2.shape[b]:
            raise ShapeError(
                f"expected paired axes of one length in tensordot, got {x1.shape[a]} (axis {a} of "
                f"{x1.shape}) and {x2.shape[b]} (axis {b} of {x2.shape})"
            )
    letters = iter(ascii_letters)
    labels1 = [next(letters) for _ in range(x1.ndim)]
    labels2 = [next(letters) for _ in range(x2.ndim)]
    for a, b in zip(left, right):
        labels2[b] = labels1[a]
    free = [c for a, c in enumerate(labels1) if a not in left]
    free += [c for b, c in enumerate(labels2) if b not in right]
    subscripts = f"{''.join(labels1)},{''.join(labels2)}->{''.join(free)}"
    return apply(_contraction.EINSUM, x1, x2, subscripts=subscripts)


def _paired_axes(x1: Tensor, x2: Tensor, axes: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if isinstance(axes, int):
        if not 0 <= axes <= min(x1.ndim, x2.ndim):
            raise ShapeError(
                f"expected axes from 0 to {min(x1.ndim, x2.ndim)} in tensordot, got {axes}: the "
                f"shapes are {x1.shape} and {x2.shape}"
            )
        return tuple(range(x1.ndim - axes, x1.ndim)), tuple(range(axes))
    first, second = (tuple(part) for part in axes)
    if len(first) != len(second):
        raise ShapeError(
            f"expected as many axes of x1 as of x2 in tensordot, got {first} and {second}"
        )
    return (
        normalized_axes(first, x1.ndim, "tensordot"),
        normalized_axes(second, x2.ndim, "tensordot"),
    )


def vecdot(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """Return the dot products of vectors along an axis; the first argument is conjugated.

    Arguments:
        x1: The first vectors.
        x2: The second vectors.
        axis: The axis of their elements.

    Raises:
        ShapeError: If the vectors differ in length.

    Examples:
        >>> tg.vecdot(tg.tensor([[1.0, 2.0], [3.0, 4.0]]), tg.tensor([1.0, 10.0]))
        tensor([21., 43.])
    """
    x1, x2 = promoted("vecdot", (x1, x2))
    axis = _common_axis(x1, x2, axis, "vecdot")
    if x1.shape[axis] != x2.shape[axis]:
        raise ShapeError(
            f"expected vectors of one length in vecdot, got {x1.shape[axis]} and {x2.shape[axis]}"
        )
    return apply(_primitives.VECDOT, x1, x2, axis=axis)


def _common_axis(x1: Tensor, x2: Tensor, axis: int, name: str) -> int:
    """Return the axis counted from the end, where both arguments have it."""
    least = min(x1.ndim, x2.ndim)
    from_end = axis if axis < 0 else axis - max(x1.ndim, x2.ndim)
    if not -least <= from_end <= -1:
        raise ShapeError(
            f"expected an axis of both arguments in {name}, got {axis} for the shapes {x1.shape} "
            f"and {x2.shape}; count it from the end, from {-least} to -1"
        )
    return from_end


def outer(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return all products of an element of one vector and an element of another.

    Raises:
        ShapeError: If one of them is not a vector.

    Examples:
        >>> tg.outer(tg.tensor([1, 2]), tg.tensor([1, 10, 100]))
        tensor([[  1,  10, 100],
                [  2,  20, 200]])
    """
    x1, x2 = promoted("outer", (x1, x2))
    if x1.ndim != 1 or x2.ndim != 1:
        raise ShapeError(f"expected two vectors in outer, got shapes {x1.shape} and {x2.shape}")
    return apply(_contraction.EINSUM, x1, x2, subscripts="a,b->ab")


def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """Return the cross products of vectors of three elements along an axis.

    Arguments:
        x1: The first vectors.
        x2: The second vectors.
        axis: The axis of their elements.

    Raises:
        ShapeError: If the vectors don't have three elements.

    Examples:
        >>> tg.linalg.cross(tg.tensor([1.0, 0.0, 0.0]), tg.tensor([0.0, 1.0, 0.0]))
        tensor([0., 0., 1.])
    """
    x1, x2 = promoted("cross", (x1, x2))
    axis = _common_axis(x1, x2, axis, "cross")
    if x1.shape[axis] != 3 or x2.shape[axis] != 3:
        raise ShapeError(
            f"expected vectors of 3 elements in cross, got {x1.shape[axis]} and {x2.shape[axis]}"
        )
    return apply(_primitives.CROSS, x1, x2, axis=axis)


def kron(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return the Kronecker product: every element of x1 times a whole copy of x2.

    Examples:
        >>> tg.kron(tg.tensor([1, 10]), tg.tensor([1, 2]))
        tensor([ 1,  2, 10, 20])
    """
    x1, x2 = promoted("kron", (x1, x2))
    ndim = max(x1.ndim, x2.ndim)
    shape1 = (1,) * (ndim - x1.ndim) + x1.shape
    shape2 = (1,) * (ndim - x2.ndim) + x2.shape
    blocks = reshape(x1, tuple(n for length in shape1 for n in (length, 1)))
    copies = reshape(x2, tuple(n for length in shape2 for n in (1, length)))
    return reshape(blocks * copies, tuple(a * b for a, b in zip(shape1, shape2)))


def diagonal(x: ArrayLike, /, offset: int = 0) -> Tensor:
    """Return the diagonals of matrices; a positive offset counts above the main one.

    Raises:
        ShapeError: If x has fewer than two axes.

    Examples:
        >>> tg.diagonal(tg.tensor([[1, 2], [3, 4]]))
        tensor([1, 4])
    """
    x = as_matrix(x, "diagonal")
    return apply(_primitives.DIAGONAL, x, offset=offset)


def trace(x: ArrayLike, /, offset: int = 0, *, dtype: Any = None) -> Tensor:
    """Return the sums of the diagonals of matrices.

    Arguments:
        x: The matrices.
        offset: Which diagonal: 0 is the main one, a positive number counts above it.
        dtype: The dtype to compute in and to return; that of x by default.

    Raises:
        ShapeError: If x has fewer than two axes.

    Examples:
        >>> tg.trace(tg.tensor([[1, 2], [3, 4]]))
        tensor(5)
    """
    x = as_matrix(x, "trace")
    if dtype is not None:
        x = astype(x, dtype, copy=False)
    return apply(_primitives.TRACE, x, offset=offset)


def diagonal_matrix(x: ArrayLike, /) -> Tensor:
    """Return square matrices with the last axis of x on the diagonal and zeros elsewhere."""
    x = as_tensor(x, "diagonal_matrix")
    if not x.ndim:
        raise ShapeError("expected at least one axis in diagonal_matrix, got a 0-d tensor")
    return apply(_primitives.DIAGONAL_MATRIX, x)


def diag(x: ArrayLike, /, offset: int = 0) -> Tensor:
    """Return the diagonal of a matrix, or the matrix with a vector on its diagonal.

    Examples:
        >>> tg.diag(tg.tensor([1, 2]))
        tensor([[1, 0],
                [0, 2]])
        >>> tg.diag(tg.tensor([[1, 2], [3, 4]]))
        tensor([1, 4])
    """
    x = as_tensor(x, "diag")
    if x.ndim != 1:
        return diagonal(x, offset=offset)
    square = diagonal_matrix(x)
    if not offset:
        return square
    n = x.shape[0]
    top, left = max(-offset, 0), max(offset, 0)
    whole = zeros((n + abs(offset), n + abs(offset)), dtype=x.dtype)
    return index_set(whole, square, index=(slice(top, top + n), slice(left, left + n)))
