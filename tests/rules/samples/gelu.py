"""Samples of ``rules/gelu.py``."""

from typing import Any

import numpy as np
from scipy.special import ndtr
from scipy.stats import norm
from tests.rules.samples.families import of_one
from tests.rules.samples.sample import Entry

__all__ = ["SAMPLES"]


def _gelu(x: Any) -> Any:
    return np.asarray(x * ndtr(x)), np.asarray(ndtr(x) + x * norm.pdf(x))


def _torch_gelu(torch: Any, x: Any) -> Any:
    density = torch.exp(-0.5 * x * x) / (2 * torch.pi) ** 0.5
    return torch.nn.functional.gelu(x), torch.special.ndtr(x) + x * density


SAMPLES = {"gelu_with_slope": Entry(of_one(), numpy=_gelu, torch=_torch_gelu)}
