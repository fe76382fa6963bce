"""Products of matrices and vectors."""

from telegrad.errors import ShapeError
from telegrad.ops.arguments import ArrayLike, as_tensor
from telegrad.rules import products as _rows
from telegrad.tensors import Tensor, apply
from telegrad.tensors.hot import product

__all__ = ["matmul", "matrix_transpose"]


_matrix_product = product(_rows.MATRIX_PRODUCT)


def matmul(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The product of matrices, or of stacks of matrices; vectors count as one row or column."""
    if isinstance(x1, Tensor) and isinstance(x2, Tensor):
        made = _matrix_product(x1, x2)
        if made is not None:
            return made
    return apply(_rows.MATMUL, x1, x2)  # type: ignore[no-any-return]


def matrix_transpose(x: ArrayLike, /) -> Tensor:
    """The last two axes exchanged."""
    x = as_tensor(x, "matrix_transpose")
    if x.ndim < 2:
        raise ShapeError(f"expected at least two axes in matrix_transpose, got shape {x.shape}")
    return apply(_rows.MATRIX_TRANSPOSE, x)  # type: ignore[no-any-return]
