"""Samples of ``rules/normalization.py``."""

from typing import Any

import numpy as np
from tests.rules.samples.sample import Entry, normal, sample

__all__ = ["SAMPLES"]


def _normalize(x: Any, *, axes: Any, eps: float) -> Any:
    scale = 1 / np.sqrt(np.var(x, axis=axes, keepdims=True) + eps)
    return (x - np.mean(x, axis=axes, keepdims=True)) * scale, scale


def _torch_normalize(torch: Any, x: Any, *, axes: Any, eps: float) -> Any:
    scale = 1 / torch.sqrt(torch.var(x, axes, correction=0, keepdim=True) + eps)
    return (x - torch.mean(x, axes, keepdim=True)) * scale, scale


def _layer_norm(x: Any, weight: Any, bias: Any, *, eps: float) -> Any:
    axes = tuple(range(x.ndim - weight.ndim, x.ndim))
    centred, scale = _normalize(x, axes=axes, eps=eps)
    return centred * weight + bias, centred, scale


def _torch_layer_norm(torch: Any, x: Any, weight: Any, bias: Any, *, eps: float) -> Any:
    axes = tuple(range(x.ndim - weight.ndim, x.ndim))
    centred, scale = _torch_normalize(torch, x, axes=axes, eps=eps)
    value = torch.nn.functional.layer_norm(x, weight.shape, weight, bias, eps)
    return value, centred, scale


SAMPLES = {
    "normalize": Entry(
        (
            sample("last axis", normal(2, 4), axes=(1,), eps=0.1),
            sample("two axes", normal(2, 3, 2), axes=(1, 2), eps=1e-3),
            sample("axes apart", normal(3, 2, 2), axes=(0, 2), eps=0.01),
            sample("zero-size", normal(0, 2), axes=(1,), eps=0.01),
        ),
        numpy=_normalize,
        torch=_torch_normalize,
    ),
    "layer_norm": Entry(
        (
            sample("last axis", normal(2, 4), normal(4), normal(4), eps=0.1),
            sample("two axes", normal(3, 2, 2), normal(2, 2), normal(2, 2), eps=0.01),
            sample("two axes before", normal(2, 1, 3), normal(3), normal(3), eps=0.01),
            sample("no axis before", normal(3), normal(3), normal(3), eps=0.1),
            sample("zero-size", normal(0, 2), normal(2), normal(2), eps=0.01),
        ),
        numpy=_layer_norm,
        torch=_torch_layer_norm,
    ),
}
