"""Samples of ``rules/activations.py``."""

import numpy as np
from tests.rules.samples.families import of_one
from tests.rules.samples.sample import Entry, distinct

__all__ = ["SAMPLES"]

SAMPLES = {
    "relu": Entry(of_one(distinct), numpy=lambda x: np.maximum(x, 0), torch="relu"),
    "sigmoid": Entry(of_one(), numpy=lambda x: 1 / (1 + np.exp(-x)), torch="sigmoid"),
}
