"""Samples of ``rules/selection.py``."""

import numpy as np
from tests.rules.samples.families import of_two
from tests.rules.samples.sample import (
    Entry,
    Sample,
    complex_normal,
    constant,
    distinct,
    normal,
    sample,
    truths,
)

__all__ = ["SAMPLES"]

_TIES = {
    "reverse": "equal values: one-sided slopes differ, so finite differences mean nothing",
    "forward": "equal values: one-sided slopes differ, so finite differences mean nothing",
    "second": "equal values: one-sided slopes differ, so finite differences mean nothing",
}

_JUMPS = {
    "reverse": "it jumps at zero, so finite differences mean nothing",
    "forward": "it jumps at zero, so finite differences mean nothing",
    "second": "it jumps at zero, so finite differences mean nothing",
}


def _triangles() -> tuple[Sample, ...]:
    return (
        sample("square", normal(3, 3), k=0),
        sample("wide", normal(2, 3), k=1),
        sample("batched", normal(2, 3, 2), k=-1),
        sample("zero-size", normal(0, 2, 2), k=0),
        sample("complex", complex_normal(2, 2), k=0),
    )


SAMPLES = {
    "where": Entry(
        (
            sample("plain", truths(2, 3), normal(2, 3), normal(2, 3)),
            sample("broadcast values", truths(2, 3), normal(3), normal(2, 1)),
            sample("broadcast condition", truths(3), normal(2, 3), normal()),
            sample("0-d", truths(), normal(), normal()),
            sample("zero-size", truths(0, 3), normal(3), normal(0, 3)),
            sample("complex", truths(2, 2), complex_normal(2, 2), complex_normal(2)),
            sample(
                "complex beside real",
                truths(2, 2),
                complex_normal(2, 2),
                normal(2, 2),
                without={"torch": "PyTorch fails in its backward pass on this mixture"},
            ),
        ),
        torch="where",
    ),
    "where_nonzero": Entry(
        (
            *of_two(normal, distinct),
            sample("zeros", constant([1.0, 2.0]), constant([0.0, 3.0]), without=_JUMPS),
        ),
        numpy=lambda x, y: np.where(y != 0, x, 0),
        torch=lambda torch, x, y: torch.where(y != 0, x, 0.0) + 0 * y,
    ),
    "maximum": Entry(
        (
            *of_two(normal, distinct),
            sample("ties", constant([1.0, 2.0]), constant([1.0, 3.0]), without=_TIES),
        ),
        torch="maximum",
    ),
    "minimum": Entry(
        (
            *of_two(normal, distinct),
            sample("ties", constant([1.0, 2.0]), constant([1.0, 3.0]), without=_TIES),
        ),
        torch="minimum",
    ),
    "clip_low": Entry(
        (
            *of_two(normal, distinct),
            sample("on the bound", constant([1.0, 2.0]), constant([1.0, 3.0]), without=_TIES),
        ),
        numpy="maximum",
        torch=lambda torch, x, low: torch.clamp(x, min=low),
    ),
    "clip_high": Entry(
        (
            *of_two(normal, distinct),
            sample("on the bound", constant([1.0, 2.0]), constant([1.0, 3.0]), without=_TIES),
        ),
        numpy="minimum",
        torch=lambda torch, x, high: torch.clamp(x, max=high),
    ),
    "tril": Entry(_triangles(), torch=lambda torch, x, *, k: torch.tril(x, k)),
    "triu": Entry(_triangles(), torch=lambda torch, x, *, k: torch.triu(x, k)),
}
