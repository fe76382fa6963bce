"""Samples of ``rules/activations.py``."""

import math
from typing import Any

import numpy as np
import scipy.special
from tests.rules.samples.families import of_one
from tests.rules.samples.sample import Entry, complex_normal, constant, distinct, sample

__all__ = ["SAMPLES"]

_far = sample("far out", constant([-30.0, -6.0, 6.0, 30.0]))


def _gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


SAMPLES = {
    "relu": Entry(of_one(distinct), numpy=lambda x: np.maximum(x, 0), torch="relu"),
    "sigmoid": Entry(
        (*of_one(complex_draw=complex_normal), _far),
        numpy=lambda x: 1 / (1 + np.exp(-x)),
        torch="sigmoid",
    ),
    "log_sigmoid": Entry(
        (*of_one(), _far),
        numpy=lambda x: -np.log1p(np.exp(-x)),
        torch=lambda torch, x: torch.nn.functional.logsigmoid(x),
    ),
    "softplus": Entry(
        (*of_one(), _far),
        numpy=lambda x: np.log1p(np.exp(x)),
        torch=lambda torch, x: torch.nn.functional.softplus(x, threshold=40),
    ),
    "silu": Entry(
        (*of_one(complex_draw=complex_normal), _far),
        numpy=lambda x: x / (1 + np.exp(-x)),
        # PyTorch's silu has no complex derivative.
        torch=lambda torch, x: x * torch.sigmoid(x),
    ),
    "gelu": Entry(
        (*of_one(), _far),
        numpy=lambda x: x * scipy.special.ndtr(x),
        torch=lambda torch, x: torch.nn.functional.gelu(x),
    ),
    "gelu_tanh": Entry(
        (*of_one(), _far),
        numpy=_gelu_tanh,
        torch=lambda torch, x: torch.nn.functional.gelu(x, approximate="tanh"),
    ),
}
