"""Samples of ``rules/reductions.py``."""

from typing import Any

from tests.rules.samples.sample import (
    Draw,
    Entry,
    Sample,
    complex_normal,
    constant,
    distinct,
    normal,
    sample,
)

__all__ = ["SAMPLES"]


def _reduced(draw: Any = normal, *, complex_draw: Any = None) -> tuple[Sample, ...]:
    """Every way to name the axes."""

    def over(label: str, values: Draw, axis: Any, keepdims: bool) -> Sample:
        return sample(label, values, axis=axis, keepdims=keepdims)

    made = (
        over("all", draw(2, 3), None, False),
        over("all, kept", draw(2, 3), None, True),
        over("last axis", draw(2, 3), (1,), False),
        over("first axis, kept", draw(2, 3), (0,), True),
        over("two axes", draw(2, 3, 2), (0, 2), False),
        over("0-d", draw(), None, False),
        over("zero-size", draw(0, 3), (1,), False),
    )
    if complex_draw is None:
        return made
    return (*made, over("complex", complex_draw(2, 3), (1,), False))


def _torch(name: str) -> Any:
    def twin(torch: Any, x: Any, *, axis: Any, keepdims: bool) -> Any:
        axes = tuple(range(x.ndim)) if axis is None else axis
        return getattr(torch, name)(x, axes, keepdim=keepdims) if axes else x + 0

    return twin


_TIES = dict.fromkeys(
    ("reverse", "forward", "second"),
    "equal values: one-sided slopes differ, so finite differences mean nothing",
)
_tied = sample("ties", constant([[1.0, 2.0, 2.0]]), axis=(1,), keepdims=False, without=_TIES)

SAMPLES = {
    "sum": Entry(
        (
            *_reduced(complex_draw=complex_normal),
            sample("over nothing", normal(0, 3), axis=(0,), keepdims=False),
        ),
        torch=_torch("sum"),
    ),
    "mean": Entry(_reduced(complex_draw=complex_normal), torch=_torch("mean")),
    "max": Entry((*_reduced(distinct), _tied), torch=_torch("amax")),
    "min": Entry((*_reduced(distinct), _tied), torch=_torch("amin")),
}
