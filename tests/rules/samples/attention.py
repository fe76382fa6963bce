"""Samples of ``rules/attention.py``."""

from typing import Any

import numpy as np
from scipy.special import softmax
from tests.rules.samples.sample import Entry, normal, sample

__all__ = ["SAMPLES"]

_BACK = np.tri(2, dtype=bool)
_ADDED = np.array([[0.0, -0.5], [0.3, -np.inf]])
_FAR = np.array([[0.0, -100.0], [-200.0, -201.0]])


def _attention(packed: Any, *, scale: float, mask: Any) -> Any:
    q, k, v = np.transpose(packed, (2, 0, 3, 1, 4))
    scores = q @ np.swapaxes(k, -1, -2) * scale
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    weights = softmax(scores, axis=-1)
    return np.swapaxes(weights @ v, 1, 2), weights


def _torch_attention(torch: Any, packed: Any, *, scale: float, mask: Any) -> Any:
    q, k, v = torch.permute(packed, (2, 0, 3, 1, 4))
    scores = q @ k.mT * scale
    if mask is not None:
        given = torch.tensor(mask)
        if mask.dtype == bool:
            scores = scores.masked_fill(~given, -torch.inf)
        else:
            scores = scores + given.to(scores.dtype)
    weights = torch.softmax(scores, -1)
    return torch.swapaxes(weights @ v, 1, 2), weights


SAMPLES = {
    "self_attention": Entry(
        (
            sample("plain", normal(1, 2, 3, 1, 2), scale=0.7, mask=None),
            sample("heads", normal(1, 1, 3, 2, 1), scale=1.0, mask=None),
            sample("looking back", normal(1, 2, 3, 1, 2), scale=0.7, mask=_BACK),
            sample("added", normal(1, 2, 3, 1, 1), scale=0.7, mask=_ADDED),
            sample("far apart", normal(1, 2, 3, 1, 1), scale=0.7, mask=_FAR),
            sample("zero-size", normal(0, 2, 3, 1, 2), scale=0.7, mask=None),
        ),
        numpy=_attention,
        torch=_torch_attention,
    )
}
