"""Linear algebra: the ``linalg`` extension of the array API standard, and a little beyond.

Every function takes matrices in the last two axes and stacks of them in the others.
``rules.spectra`` says which derivatives are undefined (equal eigenvalues, phases of vectors).
"""

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Never

from telegrad.errors import DTypeError, ShapeError, UsageError
from telegrad.ops.arguments import (
    ArrayLike,
    Axis,
    as_matrix,
    as_tensor,
    check_floating,
    normalized_axes,
    promoted,
)
from telegrad.ops.filled import ones_like
from telegrad.ops.magnitude import abs
from telegrad.ops.manipulation import reshape
from telegrad.ops.products import (
    cross,
    diagonal,
    matmul,
    matrix_transpose,
    outer,
    tensordot,
    trace,
    vecdot,
)
from telegrad.ops.reductions import max, min, sum
from telegrad.ops.selection import tril, triu, where
from telegrad.rules import decompositions as _decompositions
from telegrad.rules import linear_systems as _solving
from telegrad.rules import norms as _norms
from telegrad.rules import spectra as _spectra
from telegrad.tensors import Tensor, apply, apply_several
from telegrad.tensors.torch_hints import advice_on_names, unexpected
from telegrad.tensors.torch_names import LINALG

__all__ = [
    "EighResult",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "cholesky",
    "cofactor",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "expm",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


class EighResult(NamedTuple):
    """The eigenvalues and eigenvectors that ``eigh`` returns.

    Examples:
        >>> tg.linalg.eigh(tg.eye(2)).eigenvalues
        tensor([1., 1.])
    """

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """The factors ``Q`` and ``R`` that ``qr`` returns.

    Examples:
        >>> tg.linalg.qr(tg.ones(3, 2)).R.shape
        (2, 2)
    """

    Q: Tensor
    R: Tensor


class SlogdetResult(NamedTuple):
    """The sign and the logarithm that ``slogdet`` returns.

    Examples:
        >>> tg.linalg.slogdet(tg.eye(2)).logabsdet
        tensor(0.)
    """

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """The factors ``U``, ``S`` and ``Vh`` that ``svd`` returns.

    Examples:
        >>> tg.linalg.svd(tg.eye(2)).S
        tensor([1., 1.])
    """

    U: Tensor
    S: Tensor
    Vh: Tensor


def _floating(x: ArrayLike, name: str) -> Tensor:
    tensor = as_tensor(x, name)
    check_floating(tensor, name)
    return tensor


def _matrix(x: ArrayLike, name: str) -> Tensor:
    return as_matrix(_floating(x, name), name)


def _square(x: ArrayLike, name: str) -> Tensor:
    matrix = _matrix(x, name)
    if matrix.shape[-1] != matrix.shape[-2]:
        raise ShapeError(f"expected a square matrix in {name}, got shape {matrix.shape}")
    return matrix


# Inverses and determinants


def inv(x: ArrayLike, /) -> Tensor:
    """Return the inverse of a square matrix.

    Examples:
        >>> tg.linalg.inv(tg.tensor([[2.0, 0.0], [0.0, 4.0]]))
        tensor([[0.5 , 0.  ],
                [0.  , 0.25]])
    """
    return apply(_solving.INV, _square(x, "inv"))


def pinv(x: ArrayLike, /, *, rtol: float | ArrayLike | None = None) -> Tensor:
    """Return the pseudo-inverse; singular values up to `rtol` times the largest count as zero.

    Examples:
        >>> tg.linalg.pinv(tg.tensor([[1.0, 0.0], [0.0, 0.0]]))
        tensor([[1., 0.],
                [0., 0.]])
    """
    return apply(_solving.PINV, _matrix(x, "pinv"), rtol=_raw(rtol))


def solve(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """Return the solution of ``x1 @ x = x2``, where x2 with one axis is a vector, else matrices.

    Examples:
        >>> tg.linalg.solve(tg.tensor([[2.0, 0.0], [0.0, 4.0]]), tg.tensor([2.0, 2.0]))
        tensor([1. , 0.5])
    """
    return apply(_solving.SOLVE, *_system(x1, x2, "solve"))


def _system(x1: ArrayLike, x2: ArrayLike, name: str) -> list[Tensor]:
    """Return square matrices and a right side that fits them, of one dtype."""
    a, b = promoted(name, (_square(x1, name), _floating(x2, name)))
    if not b.ndim or b.shape[-1 if b.ndim == 1 else -2] != a.shape[-1]:
        raise ShapeError(
            f"expected a right side with {a.shape[-1]} rows in {name}, got shape {b.shape}"
        )
    return [a, b]


def solve_triangular(x1: ArrayLike, x2: ArrayLike, /, *, upper: bool) -> Tensor:
    """Return the solution of ``x1 @ x = x2`` as of ``solve``, reading only one triangle of x1.

    Arguments:
        x1: Square matrices.
        x2: A vector, or matrices.
        upper: Whether to read the upper triangle, or the lower.

    Raises:
        ShapeError: If the shapes don't fit.

    Examples:
        >>> tg.linalg.solve_triangular(tg.tensor([[2.0, 9.0], [1.0, 1.0]]), tg.ones(2), upper=False)
        tensor([0.5, 0.5])
    """
    a, b = _system(x1, x2, "solve_triangular")
    if b.ndim == 1:
        return solve_triangular(a, b[:, None], upper=upper)[..., 0]
    return apply(_solving.SOLVE_TRIANGULAR, a, b, upper=bool(upper))


def det(x: ArrayLike, /) -> Tensor:
    """Return the determinant; its derivatives are exact for singular matrices too.

    Examples:
        >>> tg.linalg.det(tg.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor(-2.)
    """
    return apply(_solving.DET, _square(x, "det"))


def cofactor(x: ArrayLike, /) -> Tensor:
    """Return the matrix of cofactors, ``det(x) inv(x)^T``, also of matrices without an inverse.

    Examples:
        >>> tg.linalg.cofactor(tg.tensor([[1.0, 2.0], [2.0, 4.0]]))
        tensor([[ 4., -2.],
                [-2.,  1.]])
    """
    return apply(_solving.COFACTOR, _square(x, "cofactor"))


def slogdet(x: ArrayLike, /) -> SlogdetResult:
    """Return the sign of the determinant and the logarithm of its size.

    Examples:
        >>> sign, logarithm = tg.linalg.slogdet(tg.tensor([[0.0, 1.0], [1.0, 0.0]]))
        >>> sign
        tensor(-1.)
    """
    return SlogdetResult(*apply_several(_solving.SLOGDET, _square(x, "slogdet")))


def matrix_rank(x: ArrayLike, /, *, rtol: float | ArrayLike | None = None) -> Tensor:
    """Return how many singular values exceed `rtol` times the largest. Has no derivative.

    Examples:
        >>> tg.linalg.matrix_rank(tg.ones(3, 3))
        tensor(1)
    """
    return apply(_solving.MATRIX_RANK, _matrix(x, "matrix_rank"), rtol=_raw(rtol))


def _raw(rtol: Any) -> Any:
    return rtol.array if isinstance(rtol, Tensor) else rtol


def matrix_power(x: ArrayLike, n: int, /) -> Tensor:
    """Return a square matrix to an integer power; a negative one takes the inverse.

    Examples:
        >>> tg.linalg.matrix_power(tg.tensor([[1.0, 1.0], [0.0, 1.0]]), 5)
        tensor([[1., 5.],
                [0., 1.]])
    """
    base = _square(x, "matrix_power")
    if not isinstance(n, int):
        raise DTypeError(f"expected an integer power in matrix_power, got {n!r}")
    if n == 0:
        # Not simply the identity: the result depends on x, with slope 0.
        return where(ones_like(base, dtype="bool"), tril(triu(ones_like(base))), base)
    if n < 0:
        base, n = inv(base), -n
    # Squared once for each binary digit of n; the squares whose digit is 1 are multiplied.
    while not n & 1:
        base, n = matmul(base, base), n >> 1
    result = base
    while n > 1:
        base, n = matmul(base, base), n >> 1
        if n & 1:
            result = matmul(result, base)
    return result


def expm(x: ArrayLike, /) -> Tensor:
    """Return the exponential of a square matrix.

    Examples:
        >>> tg.linalg.expm(tg.zeros(2, 2))
        tensor([[1., 0.],
                [0., 1.]])
    """
    return apply(_solving.EXPM, _square(x, "expm"))


# Decompositions


def cholesky(x: ArrayLike, /, *, upper: bool = False) -> Tensor:
    """Return the factor L of a positive definite matrix ``L @ L^H``, or U of ``U^H @ U``.

    Examples:
        >>> tg.linalg.cholesky(tg.tensor([[4.0, 2.0], [2.0, 2.0]]))
        tensor([[2., 0.],
                [1., 1.]])
    """
    return apply(_decompositions.CHOLESKY, _square(x, "cholesky"), upper=bool(upper))


def qr(x: ArrayLike, /, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """Return a matrix with orthonormal columns and an upper triangular one, whose product is x.

    Examples:
        >>> q, r = tg.linalg.qr(tg.tensor([[3.0], [4.0]]))
        >>> tg.abs(r)
        tensor([[5.]])
    """
    if mode not in ("reduced", "complete"):
        raise UsageError(f"expected the mode 'reduced' or 'complete' in qr, got {mode!r}")
    return QRResult(*apply_several(_decompositions.QR, _matrix(x, "qr"), mode=mode))


def eigh(x: ArrayLike, /) -> EighResult:
    """Return the eigenvalues, in rising order, and eigenvectors of a Hermitian matrix.

    Gradients take x to be Hermitian. Through the vectors of equal eigenvalues they are not finite.
    Complex vectors are determined up to a phase: a function that depends on it raises in the
    backward pass.

    Examples:
        >>> values, vectors = tg.linalg.eigh(tg.tensor([[2.0, 0.0], [0.0, 1.0]]))
        >>> values
        tensor([1., 2.])
    """
    return EighResult(*apply_several(_spectra.EIGH, _square(x, "eigh")))


def eigvalsh(x: ArrayLike, /) -> Tensor:
    """Return the eigenvalues of a Hermitian matrix, in rising order.

    Examples:
        >>> tg.linalg.eigvalsh(tg.tensor([[2.0, 0.0], [0.0, 1.0]]))
        tensor([1., 2.])
    """
    return apply(_spectra.EIGVALSH, _square(x, "eigvalsh"))


def svd(x: ArrayLike, /, full_matrices: bool = True) -> SVDResult:
    """Return singular vectors and values, ``x = U @ diag(S) @ Vh``.

    With `full_matrices` U and Vh are square; where x is not, only S has a derivative then.
    Gradients through the vectors of equal singular values are not finite. Complex vectors are
    determined up to a phase: a function that depends on it raises in the backward pass.

    Examples:
        >>> u, s, vh = tg.linalg.svd(tg.tensor([[3.0, 0.0], [0.0, 5.0]]))
        >>> s
        tensor([5., 3.])
    """
    matrix = _matrix(x, "svd")
    is_square = matrix.shape[-1] == matrix.shape[-2]
    primitive = _spectra.SVD_FULL if full_matrices and not is_square else _spectra.SVD
    return SVDResult(*apply_several(primitive, matrix))


def svdvals(x: ArrayLike, /) -> Tensor:
    """Return the singular values, in falling order.

    Examples:
        >>> tg.linalg.svdvals(tg.tensor([[3.0, 0.0], [0.0, 5.0]]))
        tensor([5., 3.])
    """
    return apply(_spectra.SVDVALS, _matrix(x, "svdvals"))


# Norms


def vector_norm(
    x: ArrayLike,
    /,
    *,
    axis: Axis = None,
    keepdims: bool = False,
    ord: float = 2,
    **unknown: Never,
) -> Tensor:
    """Return the norm of vectors along some axes, or of all elements.

    Arguments:
        x: The values.
        axis: The axis, or axes, of the vectors; all by default.
        keepdims: Whether the axes gone over stay, with length 1.
        ord: The order of the norm: any number, also inf and -inf.

    Raises:
        DTypeError: If x is neither floating nor complex.

    Examples:
        >>> tg.linalg.vector_norm(tg.tensor([3.0, 4.0]))
        tensor(5.)
    """
    if unknown:
        raise unexpected("vector_norm", unknown)
    x = _floating(x, "vector_norm")
    if axis is not None:
        axis = normalized_axes(axis, x.ndim, "vector_norm")
    return apply(_norms.VECTOR_NORM, x, axis=axis, keepdims=bool(keepdims), ord=ord)


def matrix_norm(
    x: ArrayLike, /, *, keepdims: bool = False, ord: float | Literal["fro", "nuc"] | None = "fro"
) -> Tensor:
    """Return the norm of matrices.

    Arguments:
        x: The matrices.
        keepdims: Whether the last two axes stay, with length 1.
        ord: 'fro', 'nuc', 1, -1, 2, -2, inf or -inf.

    Raises:
        UsageError: If the order is not one of these.

    Examples:
        >>> tg.linalg.matrix_norm(tg.tensor([[3.0, 0.0], [0.0, 4.0]]))
        tensor(5.)
    """
    x = _matrix(x, "matrix_norm")
    if ord in ("fro", None):
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord == "nuc":
        result = sum(svdvals(x), axis=-1)
    elif ord in (2, -2):
        result = _extreme(svdvals(x), ord)
    elif ord in (1, -1, float("inf"), float("-inf")):
        sums = sum(abs(x), axis=-2 if ord in (1, -1) else -1)
        result = _extreme(sums, ord)
    else:
        raise UsageError(
            f"expected 'fro', 'nuc', 1, -1, 2, -2, inf or -inf as ord of matrix_norm, got {ord!r}"
        )
    return reshape(result, (*result.shape, 1, 1)) if keepdims else result


def _extreme(values: Tensor, ord: Any) -> Tensor:
    """Return the largest value for a positive order, else the smallest; of none, 0."""
    if ord > 0 and not values.shape[-1]:
        return sum(values, axis=-1)
    return (max if ord > 0 else min)(values, axis=-1)


if not TYPE_CHECKING:  # or a type checker would take every name for known
    __getattr__ = advice_on_names(__name__, LINALG)
