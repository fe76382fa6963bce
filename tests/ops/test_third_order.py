"""Third derivatives of what has rules of its own, in both modes and all their mixtures."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.ops.twins import normals

import telegrad as tg
from telegrad.testing import gradient_check

PLACES = np.asarray([0, 0, 2])

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "gelu": tg.gelu,
    "silu": tg.silu,
    "softplus": tg.softplus,
    "softmax": tg.softmax,
    "log_softmax": tg.log_softmax,
    "logsumexp": tg.logsumexp,
    "ndtr": tg.ndtr,
    "lgamma": lambda x: tg.lgamma(x * x + 0.5),
    "windows": lambda x: tg.windows(x, 2) ** 3,
    "pad": lambda x: tg.pad(x, 1, mode="edge") ** 3,
    "gather": lambda x: tg.gather(x, PLACES, axis=0) ** 3,
    "at": lambda x: x.at[PLACES].multiply(x * x),
    "einsum through NumPy": lambda x: np.einsum("i,i,j->j", x, x, x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_third_derivative_agrees_with_differences(name: str) -> None:
    gradient_check(FUNCTIONS[name], (normals(3),), order=3)
