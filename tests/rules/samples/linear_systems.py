"""Samples of ``rules/linear_systems.py``."""

import numpy as np
from tests.rules.samples.sample import Entry, complex_normal, constant, normal, sample

__all__ = ["SAMPLES"]


def _well(xp, a, *rest):  # type: ignore[no-untyped-def]
    """A matrix far from singular."""
    return (a * 0.25 + _eye(xp, a), *rest)


def _eye(xp, a):  # type: ignore[no-untyped-def]
    return xp.eye(a.shape[-1], dtype=a.dtype)


def _cofactors(x):  # type: ignore[no-untyped-def]
    rows = range(x.shape[-1])
    minors = [
        [
            np.linalg.det(np.delete(np.delete(x, i, axis=-2), j, axis=-1)) * (-1) ** (i + j)
            for j in rows
        ]
        for i in rows
    ]
    return np.moveaxis(np.asarray(minors), (0, 1), (-2, -1))


_square = (
    sample("plain", normal(3, 3), prepare=_well),
    sample("one by one", normal(1, 1), prepare=_well),
    sample("batched", normal(2, 2, 2), prepare=_well),
    sample("no matrices", normal(0, 2, 2), prepare=_well),
    sample("complex", complex_normal(2, 2), prepare=_well),
)

_singular = sample("singular", constant([[1.0, 2.0, 0.5], [2.0, 4.0, 1.0], [0.3, -1.0, 2.0]]))
_rank_one = sample(
    "of rank one",
    constant([[1.0, 2.0, 0.5], [2.0, 4.0, 1.0], [-1.0, -2.0, -0.5]]),
    without={"torch": "PyTorch's second derivative of a singular determinant is not exact"},
)

SAMPLES = {
    "inv": Entry(
        (*_square, sample("zero-size", normal(0, 0))), numpy="linalg.inv", torch="linalg.inv"
    ),
    "solve": Entry(
        (
            sample("matrix", normal(3, 3), normal(3, 2), prepare=_well),
            sample("vector", normal(3, 3), normal(3), prepare=_well),
            sample("batched", normal(2, 2, 2), normal(2, 2, 1), prepare=_well),
            sample("batches broadcast", normal(2, 2, 2), normal(3, 1, 2, 1), prepare=_well),
            sample("one right side", normal(2, 2, 2), normal(2, 1), prepare=_well),
            sample("batch by vector", normal(2, 2, 2), normal(2), prepare=_well),
            sample("one matrix", normal(2, 2), normal(2, 2, 1), prepare=_well),
            sample("zero columns", normal(2, 2), normal(2, 0), prepare=_well),
            sample("complex", complex_normal(2, 2), complex_normal(2, 1), prepare=_well),
        ),
        numpy="linalg.solve",
        torch=lambda torch, x, y: (
            torch.linalg.solve(x, y)
            if len(y.shape) > 1
            else torch.linalg.solve(x, y[:, None])[..., 0]
        ),
    ),
    "solve_triangular": Entry(
        (
            sample("lower", normal(3, 3), normal(3, 2), prepare=_well, upper=False),
            sample("upper", normal(3, 3), normal(3, 2), prepare=_well, upper=True),
            sample("batched", normal(2, 2, 2), normal(2, 2, 1), prepare=_well, upper=True),
            sample("broadcast", normal(2, 2), normal(2, 2, 1), prepare=_well, upper=False),
            sample("zero columns", normal(2, 2), normal(2, 0), prepare=_well, upper=True),
            sample(
                "complex", complex_normal(2, 2), complex_normal(2, 1), prepare=_well, upper=False
            ),
        ),
        numpy=lambda x, y, *, upper: np.linalg.solve(np.triu(x) if upper else np.tril(x), y),
        torch=lambda torch, x, y, *, upper: torch.linalg.solve_triangular(x, y, upper=upper),
    ),
    "det": Entry((*_square, _singular, _rank_one), numpy="linalg.det", torch="linalg.det"),
    "cofactor": Entry(
        (*_square[0:1], *_square[2:], _singular),
        numpy=_cofactors,
        no_torch="PyTorch has no function for cofactors",
    ),
    "slogdet": Entry(_square, numpy="linalg.slogdet", torch="linalg.slogdet"),
    "pinv": Entry(
        (
            sample("tall", normal(3, 2), rtol=None),
            sample("wide, batched", normal(2, 2, 3), rtol=None),
            sample("square", normal(2, 2), prepare=_well, rtol=1e-6),
            sample("zero-size", normal(0, 2), rtol=None),
            sample("complex", complex_normal(3, 2), rtol=None),
        ),
        numpy="linalg.pinv",
        torch=lambda torch, x, *, rtol: torch.linalg.pinv(x, rtol=rtol),
    ),
    "expm": Entry(
        (
            sample("plain", normal(3, 3)),
            sample("batched", normal(2, 2, 2)),
            sample("large", constant([[3.0, -2.0], [4.0, 1.0]])),
            sample("zero", constant([[0.0, 0.0], [0.0, 0.0]])),
            sample("zero-size", normal(0, 2, 2)),
            sample("complex", complex_normal(2, 2)),
        ),
        no_numpy="NumPy has no matrix exponential",
        torch="linalg.matrix_exp",
    ),
}
