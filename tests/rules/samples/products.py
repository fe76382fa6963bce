"""Samples of ``rules/products.py``."""

import numpy as np
from tests.rules.samples.sample import Entry, complex_normal, normal, sample

__all__ = ["SAMPLES"]

_matrices = (
    sample("plain", normal(2, 3), normal(3, 2)),
    sample("zero rows", normal(0, 3), normal(3, 2)),
    sample("zero inside", normal(2, 0), normal(0, 2)),
    sample("complex", complex_normal(2, 2), complex_normal(2, 2)),
)

SAMPLES = {
    "matmul": Entry(
        (
            *_matrices,
            sample("vector by vector", normal(3), normal(3)),
            sample("vector by matrix", normal(3), normal(3, 2)),
            sample("matrix by vector", normal(2, 3), normal(3)),
            sample("batched", normal(2, 1, 2), normal(2, 2, 1)),
            sample("batch broadcast", normal(2, 2, 2), normal(2, 1)),
            sample("batches of several axes", normal(2, 1, 1, 2), normal(3, 2, 1)),
            sample("vector by batch", normal(2), normal(2, 2, 2)),
            sample("batch by vector", normal(2, 2, 2), normal(2)),
            sample("complex beside real", complex_normal(2, 2), normal(2)),
        ),
        torch=lambda torch, x, y: torch.matmul(*_of_one_dtype(torch, x, y)),
    ),
    "matrix_product": Entry(_matrices, numpy="matmul", torch="matmul"),
    "matrix_transpose": Entry(
        (
            sample("plain", normal(2, 3)),
            sample("batched", normal(2, 1, 3)),
            sample("zero-size", normal(0, 3)),
            sample("complex", complex_normal(2, 3)),
        ),
        torch=lambda torch, x: x.mT,
    ),
    "vecdot": Entry(
        (
            sample("vectors", normal(3), normal(3), axis=-1),
            sample("an inner axis", normal(2, 3, 2), normal(2, 3, 2), axis=-2),
            sample("broadcast", normal(2, 1, 3), normal(2, 3), axis=-1),
            sample("zero-size", normal(2, 0), normal(2, 0), axis=-1),
            sample("complex", complex_normal(2, 3), complex_normal(2, 3), axis=-1),
            sample("complex beside real", complex_normal(3), normal(3), axis=-1),
        ),
        torch=lambda torch, x, y, *, axis: torch.linalg.vecdot(
            *_of_one_dtype(torch, x, y), dim=axis
        ),
    ),
    "cross": Entry(
        (
            sample("vectors", normal(3), normal(3), axis=-1),
            sample("an inner axis", normal(3, 2), normal(3, 2), axis=-2),
            sample("broadcast", normal(2, 1, 3), normal(2, 3), axis=-1),
            sample("zero-size", normal(0, 3), normal(0, 3), axis=-1),
            sample("complex", complex_normal(3), complex_normal(3), axis=-1),
        ),
        numpy="linalg.cross",
        torch=lambda torch, x, y, *, axis: torch.linalg.cross(
            *torch.broadcast_tensors(x, y), dim=axis
        ),
    ),
    "diagonal": Entry(
        (
            sample("plain", normal(3, 3), offset=0),
            sample("tall", normal(3, 2), offset=0),
            sample("above", normal(2, 3), offset=1),
            sample("below, batched", normal(2, 3, 2), offset=-1),
            sample("beyond", normal(2, 2), offset=3),
            sample("zero-size", normal(0, 2), offset=0),
            sample("complex", complex_normal(2, 2), offset=0),
        ),
        numpy="linalg.diagonal",
        torch=lambda torch, x, *, offset: torch.diagonal(x, offset, -2, -1),
    ),
    "diagonal_matrix": Entry(
        (
            sample("plain", normal(3)),
            sample("batched", normal(2, 2)),
            sample("zero-size", normal(0)),
            sample("complex", complex_normal(2)),
        ),
        numpy=lambda x: x[..., None] * np.eye(x.shape[-1]),
        torch="diag_embed",
    ),
    "trace": Entry(
        (
            sample("plain", normal(3, 3), offset=0),
            sample("tall, above", normal(3, 2), offset=1),
            sample("batched, below", normal(2, 2, 3), offset=-1),
            sample("zero-size", normal(0, 2), offset=0),
            sample("complex", complex_normal(2, 2), offset=0),
        ),
        numpy="linalg.trace",
        torch=lambda torch, x, *, offset: torch.diagonal(x, offset, -2, -1).sum(-1),
    ),
}


def _of_one_dtype(torch, x, y):  # type: ignore[no-untyped-def]
    dtype = torch.promote_types(x.dtype, y.dtype)
    return x.to(dtype), y.to(dtype)
