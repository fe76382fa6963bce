"""Samples of ``rules/gating.py``."""

import numpy as np
from scipy.special import ndtr
from tests.rules.samples.families import of_one
from tests.rules.samples.sample import Entry

__all__ = ["SAMPLES"]

SAMPLES = {
    "gated_gelu": Entry(
        of_one(),
        numpy=lambda x: (np.asarray(x * ndtr(x)), np.asarray(ndtr(x))),
        torch=lambda torch, x: (torch.nn.functional.gelu(x), torch.special.ndtr(x)),
    )
}
