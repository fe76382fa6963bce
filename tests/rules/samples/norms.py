"""Samples of ``rules/norms.py``."""

from math import inf

from tests.rules.samples.sample import Entry, complex_normal, distinct, normal, positive, sample

__all__ = ["SAMPLES"]

_one = {"axis": (1,), "keepdims": False}

SAMPLES = {
    "vector_norm": Entry(
        (
            sample("Euclid's", distinct(2, 3), ord=2, **_one),
            sample("of all", distinct(2, 3), ord=2, axis=None, keepdims=False),
            sample("kept", distinct(2, 3), ord=2, axis=(0,), keepdims=True),
            sample("two axes", distinct(2, 2, 2), ord=3, axis=(0, 2), keepdims=False),
            sample("0-d", distinct(), ord=2, axis=None, keepdims=False),
            sample("count", distinct(2, 3), ord=0, **_one),
            sample("sum", distinct(2, 3), ord=1, **_one),
            sample("largest", distinct(2, 3), ord=inf, **_one),
            sample("smallest", distinct(2, 3), ord=-inf, **_one),
            sample("order 0.5", positive(2, 2), ord=0.5, **_one),
            sample("order 1.5", distinct(2, 3), ord=1.5, **_one),
            sample("order 3.5", distinct(2, 3), ord=3.5, **_one),
            sample("order -1", positive(2, 3), ord=-1, **_one),
            sample("zero-size", normal(0, 3), ord=2, **_one),
            sample("of nothing", normal(2, 0), ord=2, **_one),
            sample("complex", complex_normal(2, 2), ord=2, **_one),
            sample("complex, order 3", complex_normal(2, 2), ord=3, **_one),
            sample("complex, order 1", complex_normal(2, 2), ord=1, **_one),
            sample("complex, largest", complex_normal(2, 2), ord=inf, **_one),
        ),
        numpy="linalg.vector_norm",
        torch=lambda torch, x, *, axis, keepdims, ord: torch.linalg.vector_norm(
            x, ord, axis, keepdims
        ),
    ),
}
