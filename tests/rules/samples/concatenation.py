"""Samples of ``rules/concatenation.py``."""

from typing import Any

import numpy as np
from tests.rules.samples.sample import Entry, complex_normal, normal, sample

__all__ = ["SAMPLES"]


def _concat(*parts: Any, axis: int, bounds: tuple[int, ...]) -> Any:
    return np.concat(parts, axis=axis)


def _torch_concat(torch: Any, *parts: Any, axis: int, bounds: tuple[int, ...]) -> Any:
    return torch.cat(parts, axis)


_three = (normal(2, 2), normal(2, 2), normal(2, 2))

SAMPLES = {
    "concat": Entry(
        (
            sample(
                "first axis", normal(1, 2), normal(2, 2), normal(3, 2), axis=0, bounds=(1, 3, 6)
            ),
            sample("last axis", normal(2, 1), normal(2, 3), normal(2, 1), axis=1, bounds=(1, 4, 5)),
            sample("an empty part", normal(2), normal(0), normal(1), axis=0, bounds=(2, 2, 3)),
            sample("zero-size", normal(0, 1), normal(0, 2), normal(0, 1), axis=1, bounds=(1, 3, 4)),
            sample(
                "complex beside real",
                *(complex_normal(2), normal(1), complex_normal(1)),
                axis=0,
                bounds=(2, 3, 4),
            ),
        ),
        numpy=_concat,
        torch=_torch_concat,
    ),
    "stack": Entry(
        (
            sample("first axis", *_three, axis=0),
            sample("last axis", *_three, axis=2),
            sample("0-d", normal(), normal(), normal(), axis=0),
            sample("zero-size", normal(0, 2), normal(0, 2), normal(0, 2), axis=1),
            sample("complex", complex_normal(2), complex_normal(2), complex_normal(2), axis=0),
        ),
        numpy=lambda *parts, axis: np.stack(parts, axis=axis),
        torch=lambda torch, *parts, axis: torch.stack(parts, axis),
    ),
    "unstack": Entry(
        (
            sample("first axis", normal(3, 2), axis=0),
            sample("last axis", normal(2, 3), axis=1),
            sample("to 0-d", normal(3), axis=0),
            sample("zero-size", normal(3, 0), axis=0),
            sample("complex", complex_normal(3), axis=0),
        ),
        torch=lambda torch, x, *, axis: torch.unbind(x, axis),
    ),
}
