"""Samples of ``rules/decompositions.py``."""

import numpy as np
from tests.rules.samples.sample import Entry, complex_normal, normal, sample

__all__ = ["SAMPLES"]


def _positive_definite(xp, a):  # type: ignore[no-untyped-def]
    return (a @ xp.conj(a).mT + xp.eye(a.shape[-1], dtype=a.dtype),)


def _with_large_diagonal(xp, a):  # type: ignore[no-untyped-def]
    """Far from where the signs that LAPACK chooses change."""
    return (a + xp.eye(a.shape[-2], a.shape[-1], dtype=a.dtype) * 3,)


_signs = {"torch": "the signs are LAPACK's choice, which differs between the libraries"}

SAMPLES = {
    "cholesky": Entry(
        (
            sample("plain", normal(3, 3), prepare=_positive_definite, upper=False),
            sample("upper", normal(2, 2), prepare=_positive_definite, upper=True),
            sample("batched", normal(2, 2, 2), prepare=_positive_definite, upper=False),
            sample("no matrices", normal(0, 2, 2), prepare=_positive_definite, upper=False),
            sample("complex", complex_normal(2, 2), prepare=_positive_definite, upper=False),
            sample("complex, upper", complex_normal(2, 2), prepare=_positive_definite, upper=True),
        ),
        numpy="linalg.cholesky",
        torch="linalg.cholesky",
    ),
    "qr": Entry(
        (
            sample(
                "tall", normal(3, 2), mode="reduced", prepare=_with_large_diagonal, without=_signs
            ),
            sample(
                "square", normal(2, 2), mode="reduced", prepare=_with_large_diagonal, without=_signs
            ),
            sample(
                "wide", normal(2, 3), mode="reduced", prepare=_with_large_diagonal, without=_signs
            ),
            sample(
                "batched",
                normal(2, 2, 2),
                mode="reduced",
                prepare=_with_large_diagonal,
                without=_signs,
            ),
            sample(
                "complete, wide",
                normal(2, 3),
                mode="complete",
                prepare=_with_large_diagonal,
                without=_signs,
            ),
            sample("no matrices", normal(0, 3, 2), mode="reduced", prepare=_with_large_diagonal),
            sample(
                "complex",
                complex_normal(3, 2),
                mode="reduced",
                prepare=_with_large_diagonal,
                without=_signs,
            ),
            sample(
                "complex, wide",
                complex_normal(2, 3),
                mode="reduced",
                prepare=_with_large_diagonal,
                without=_signs,
            ),
        ),
        numpy=lambda x, *, mode: tuple(np.linalg.qr(x, mode=mode)),
        torch="linalg.qr",
    ),
}
