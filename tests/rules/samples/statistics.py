"""Samples of ``rules/statistics.py``."""

from typing import Any

from tests.rules.samples.sample import Entry, Sample, complex_normal, constant, normal, sample

__all__ = ["SAMPLES"]

_STRICT = {"strict": "the standard has no variance of complex values"}
_FLAT = dict.fromkeys(
    ("reverse", "forward", "second", "torch"),
    "equal values: the root has a cusp, where derivatives are a matter of convention",
)


def _spread() -> tuple[Sample, ...]:
    return (
        sample("all", normal(2, 3), axis=None, correction=0.0, keepdims=False),
        sample("corrected", normal(2, 3), axis=None, correction=1, keepdims=False),
        sample("last axis", normal(2, 3), axis=(1,), correction=1.0, keepdims=False),
        sample("first axis, kept", normal(3, 2), axis=(0,), correction=0.5, keepdims=True),
        sample("two axes", normal(2, 2, 2), axis=(0, 2), correction=0.0, keepdims=False),
        sample("zero-size", normal(0, 3), axis=(1,), correction=0.0, keepdims=False),
        sample(
            "complex",
            complex_normal(2, 3),
            axis=(1,),
            correction=0.0,
            keepdims=False,
            without=_STRICT,
        ),
    )


def _torch(name: str) -> Any:
    def twin(torch: Any, x: Any, *, axis: Any, correction: float, keepdims: bool) -> Any:
        return getattr(torch, name)(x, axis, correction=correction, keepdim=keepdims)

    return twin


SAMPLES = {
    "var": Entry(_spread(), torch=_torch("var")),
    "std": Entry(
        (
            *_spread(),
            sample(
                "equal values",
                constant([2.0, 2.0]),
                axis=None,
                correction=0.0,
                keepdims=False,
                without=_FLAT,
            ),
        ),
        torch=_torch("std"),
    ),
}
