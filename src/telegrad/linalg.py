"""Linear algebra: the ``linalg`` extension of the array API standard, and a little beyond."""

import typing as _typing

from telegrad.ops.linalg import (
    EighResult,
    QRResult,
    SlogdetResult,
    SVDResult,
    cholesky,
    cofactor,
    cross,
    det,
    diagonal,
    eigh,
    eigvalsh,
    expm,
    inv,
    matmul,
    matrix_norm,
    matrix_power,
    matrix_rank,
    matrix_transpose,
    outer,
    pinv,
    qr,
    slogdet,
    solve,
    solve_triangular,
    svd,
    svdvals,
    tensordot,
    trace,
    vecdot,
    vector_norm,
)
from telegrad.tensors.familiar import LINALG as _LINALG
from telegrad.tensors.habits import advice_on_name as _advice_on_name

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

if not _typing.TYPE_CHECKING:  # or a type checker would take every name for known

    def __getattr__(name: str) -> None:
        raise _advice_on_name(__name__, _LINALG, name)
