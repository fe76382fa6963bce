"""Samples of ``rules/exponential.py``."""

from tests.rules.samples.families import of_one, of_two
from tests.rules.samples.sample import Entry, complex_normal, positive

__all__ = ["SAMPLES"]

SAMPLES = {
    "exp": Entry(of_one(complex_draw=complex_normal), torch="exp"),
    "expm1": Entry(of_one(complex_draw=complex_normal), torch="expm1"),
    "log": Entry(of_one(positive, complex_draw=complex_normal), torch="log"),
    "log1p": Entry(of_one(positive, complex_draw=complex_normal), torch="log1p"),
    "log2": Entry(of_one(positive, complex_draw=complex_normal), torch="log2"),
    "log10": Entry(of_one(positive, complex_draw=complex_normal), torch="log10"),
    "sqrt": Entry(of_one(positive, complex_draw=complex_normal), torch="sqrt"),
    "logaddexp": Entry(of_two(), torch="logaddexp"),
}
