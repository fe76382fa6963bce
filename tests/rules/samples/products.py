"""Samples of ``rules/products.py``."""

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
            sample("vector by batch", normal(2), normal(2, 2, 2)),
            sample("batch by vector", normal(2, 2, 2), normal(2)),
            sample(
                "complex beside real",
                complex_normal(2, 2),
                normal(2),
                without={"torch": "PyTorch's matmul takes arrays of one dtype only"},
            ),
        ),
        torch="matmul",
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
}
