"""Samples of ``rules/cumulative.py``."""

from typing import Any

import numpy as np
from tests.rules.samples.sample import Entry, Sample, complex_normal, constant, normal, sample

__all__ = ["SAMPLES"]


def _running(*more: Sample) -> tuple[Sample, ...]:
    return (
        sample("one axis", normal(5), axis=0, include_initial=False),
        sample("first of two axes", normal(3, 2), axis=0, include_initial=False),
        sample("last of two axes", normal(2, 3), axis=1, include_initial=False),
        sample("with initial", normal(2, 3), axis=1, include_initial=True),
        sample("zero-size", normal(0, 3), axis=1, include_initial=False),
        sample("along nothing", normal(2, 0), axis=1, include_initial=True),
        sample("complex", complex_normal(3), axis=0, include_initial=False),
        *more,
    )


def _torch(name: str, initial: float) -> Any:
    def twin(torch: Any, x: Any, *, axis: int, include_initial: bool) -> Any:
        out = getattr(torch, name)(x, axis)
        if not include_initial:
            return out
        start = torch.full_like(x.sum(axis, keepdim=True), initial)
        return torch.cat([start, out], axis)

    return twin


def _zeros(*values: float) -> Any:
    return constant(values)


_PROD_OPTIONS: dict[str, Any] = {"axis": None, "keepdims": False}


def _torch_prod(torch: Any, x: Any, *, axis: Any, keepdims: bool) -> Any:
    axes = tuple(range(x.ndim)) if axis is None else axis
    for each in sorted(axes, reverse=True):
        x = torch.prod(x, each, keepdim=keepdims)
    return x + 0


SAMPLES = {
    "cumulative_sum": Entry(_running(), torch=_torch("cumsum", 0.0)),
    "cumulative_prod": Entry(
        _running(
            sample("a zero", _zeros(2.0, 0.0, 3.0, 1.5), axis=0, include_initial=False),
            sample("two zeros", _zeros(0.5, 0.0, 2.0, 0.0, 3.0), axis=0, include_initial=True),
        ),
        torch=_torch("cumprod", 1.0),
    ),
    "prod": Entry(
        (
            sample("all", normal(2, 3), axis=None, keepdims=False),
            sample("all, kept", normal(2, 3), axis=None, keepdims=True),
            sample("last axis", normal(2, 3), axis=(1,), keepdims=False),
            sample("first axis, kept", normal(2, 3), axis=(0,), keepdims=True),
            sample("two axes", normal(2, 3, 2), axis=(0, 2), keepdims=False),
            sample("a zero", _zeros(2.0, 0.0, 3.0, 1.5), **_PROD_OPTIONS),
            sample("two zeros", _zeros(2.0, 0.0, 3.0, 0.0), **_PROD_OPTIONS),
            sample("three zeros", _zeros(0.0, 0.0, 3.0, 0.0), **_PROD_OPTIONS),
            sample("0-d", normal(), **_PROD_OPTIONS),
            sample("zero-size", normal(0, 3), axis=(1,), keepdims=False),
            sample("over nothing", normal(0, 3), axis=(0,), keepdims=False),
            sample("complex", complex_normal(2, 3), axis=(1,), keepdims=False),
        ),
        numpy=lambda x, *, axis, keepdims: np.asarray(np.prod(x, axis=axis, keepdims=keepdims)),
        torch=_torch_prod,
    ),
}
