"""Samples of ``rules/spectra.py``.

Of the vectors only what is determined: squares of real ones, sizes of complex ones, and products in
which their phases cancel.
"""

from typing import Any

import numpy as np
from tests.rules.samples.sample import Entry, complex_normal, constant, normal, sample

__all__ = ["SAMPLES"]


def _hermitian(xp, a):  # type: ignore[no-untyped-def]
    stairs = np.diag(np.arange(a.shape[-1]) * 3.0)
    return (a + xp.conj(a).mT + xp.asarray(stairs, dtype=a.dtype),)


def _apart(xp, a):  # type: ignore[no-untyped-def]
    """Singular values far from each other and from zero."""
    rows, columns = a.shape[-2:]
    stairs = np.eye(rows, columns) * (1.0 + 2.0 * np.arange(columns))
    return (a * 0.5 + xp.asarray(stairs, dtype=a.dtype),)


def _projectors(xp, values, vectors):  # type: ignore[no-untyped-def]
    """The values, and the projector on the first eigenvector."""
    first = vectors[..., :, :1]
    return values, first @ xp.conj(first).mT


def _best_of_rank_one(xp, u, values, vh):  # type: ignore[no-untyped-def]
    """The values, the rotation of the first pair, and the sizes of all vectors."""
    return values, u[..., :, :1] @ vh[..., :1, :], xp.abs(u) ** 2, xp.abs(vh) ** 2


_TWICE = constant([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 5.0]])
_kink = dict.fromkeys(
    ("reverse", "forward", "second"),
    "equal values have a kink: PyTorch's formula, tested in tests/ops",
)
_UNDETERMINED = dict.fromkeys(
    ("forward", "second", "float32", "strict", "torch"),
    "the vectors have no tangents, so forward mode refuses",
)


def _values(xp: Any, u: Any, values: Any, vh: Any) -> Any:
    return values


SAMPLES = {
    "eigh": Entry(
        (
            sample("plain", normal(3, 3), prepare=_hermitian, finish=_projectors),
            sample("batched", normal(2, 2, 2), prepare=_hermitian, finish=_projectors),
            sample("no matrices", normal(0, 2, 2), prepare=_hermitian, finish=_projectors),
            sample("complex", complex_normal(2, 2), prepare=_hermitian, finish=_projectors),
        ),
        numpy="linalg.eigh",
        torch="linalg.eigh",
    ),
    "eigvalsh": Entry(
        (
            sample("plain", normal(3, 3), prepare=_hermitian),
            sample("batched", normal(2, 2, 2), prepare=_hermitian),
            sample("no matrices", normal(0, 2, 2), prepare=_hermitian),
            sample("complex", complex_normal(2, 2), prepare=_hermitian),
            sample("equal values", _TWICE, without=_kink),
        ),
        numpy="linalg.eigvalsh",
        torch="linalg.eigvalsh",
    ),
    "svd": Entry(
        (
            sample("tall", normal(3, 2), prepare=_apart, finish=_best_of_rank_one),
            sample("square", normal(2, 2), prepare=_apart, finish=_best_of_rank_one),
            sample("wide", normal(2, 3), prepare=_apart, finish=_best_of_rank_one),
            sample("batched", normal(2, 2, 2), prepare=_apart, finish=_best_of_rank_one),
            sample("no matrices", normal(0, 2, 3), prepare=_apart, finish=_best_of_rank_one),
            sample("complex, tall", complex_normal(3, 2), prepare=_apart, finish=_best_of_rank_one),
            sample("complex, wide", complex_normal(2, 3), prepare=_apart, finish=_best_of_rank_one),
        ),
        numpy=lambda x: tuple(np.linalg.svd(x, full_matrices=False)),
        torch=lambda torch, x: torch.linalg.svd(x, full_matrices=False),
    ),
    "svd_full": Entry(
        (
            sample("tall", normal(3, 2), prepare=_apart, finish=_values, without=_UNDETERMINED),
            sample("no matrices", normal(0, 3, 2), finish=_values, without=_UNDETERMINED),
        ),
        numpy=lambda x: tuple(np.linalg.svd(x, full_matrices=True)),
        torch="linalg.svd",
    ),
    "svdvals": Entry(
        (
            sample("tall", normal(3, 2), prepare=_apart),
            sample("wide, batched", normal(2, 2, 3), prepare=_apart),
            sample("no matrices", normal(0, 2, 3), prepare=_apart),
            sample("complex", complex_normal(2, 2), prepare=_apart),
            sample("equal values", _TWICE, without=_kink),
        ),
        numpy="linalg.svdvals",
        torch="linalg.svdvals",
    ),
}
