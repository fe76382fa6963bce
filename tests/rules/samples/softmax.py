"""Samples of ``rules/softmax.py``."""

from typing import Any

import scipy.special
from tests.rules.samples.sample import Draw, Entry, Sample, constant, normal, sample

__all__ = ["SAMPLES"]

# exp would overflow or underflow to zero for all of these.
_large = constant([[1000.0, 1001.0, 999.5], [-1000.0, -1001.0, -1000.5]])


def _over(label: str, values: Draw, axis: tuple[int, ...], **options: Any) -> Sample:
    return sample(label, values, axis=axis, **options)


def _samples(**options: Any) -> tuple[Sample, ...]:
    return (
        _over("last axis", normal(2, 3), (1,), **options),
        _over("first axis", normal(2, 3), (0,), **options),
        _over("two axes", normal(2, 3, 2), (0, 2), **options),
        _over("0-d", normal(), (), **options),
        _over("zero-size", normal(0, 3), (1,), **options),
        _over("large values", _large, (1,), **options),
    )


def _torch_logsumexp(torch: Any, x: Any, *, axis: Any, keepdims: bool) -> Any:
    return torch.logsumexp(x, axis, keepdim=keepdims) if axis else x + 0


def _torch_log_softmax(torch: Any, x: Any, *, axis: Any) -> Any:
    return x - _torch_logsumexp(torch, x, axis=axis, keepdims=True)


def _torch_softmax(torch: Any, x: Any, *, axis: Any) -> Any:
    return torch.exp(_torch_log_softmax(torch, x, axis=axis))


def _scipy_logsumexp(x: Any, *, axis: Any, keepdims: bool) -> Any:
    return scipy.special.logsumexp(x, axis=axis, keepdims=keepdims) if axis else x


SAMPLES = {
    "softmax": Entry(_samples(), numpy=scipy.special.softmax, torch=_torch_softmax),
    "log_softmax": Entry(_samples(), numpy=scipy.special.log_softmax, torch=_torch_log_softmax),
    "logsumexp": Entry(
        (
            *_samples(keepdims=False),
            _over("kept", normal(2, 3), (1,), keepdims=True),
        ),
        numpy=_scipy_logsumexp,
        torch=_torch_logsumexp,
    ),
}
