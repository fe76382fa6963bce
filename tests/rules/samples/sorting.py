"""Samples of ``rules/sorting.py``."""

from typing import Any

import numpy as np
from tests.rules.samples.sample import Entry, distinct, sample

__all__ = ["SAMPLES"]


def _sorted(x: Any, *, axis: int, descending: bool, stable: bool) -> Any:
    return -np.sort(-x, axis=axis) if descending else np.sort(x, axis=axis)


def _torch(torch: Any, x: Any, *, axis: int, descending: bool, stable: bool) -> Any:
    return torch.sort(x, dim=axis, descending=descending, stable=stable)[0]


SAMPLES = {
    "sort": Entry(
        (
            sample("one axis", distinct(5), axis=0, descending=False, stable=True),
            sample("first of two axes", distinct(3, 2), axis=0, descending=False, stable=False),
            sample("downwards", distinct(2, 4), axis=1, descending=True, stable=True),
            sample("zero-size", distinct(0, 3), axis=1, descending=False, stable=True),
        ),
        numpy=_sorted,
        torch=_torch,
    ),
}
