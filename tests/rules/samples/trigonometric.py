"""Samples of ``rules/trigonometric.py``."""

from functools import partial

from tests.rules.samples.families import of_one, of_two
from tests.rules.samples.sample import Entry, between, complex_normal, positive

__all__ = ["SAMPLES"]

_inside = partial(between, -0.9, 0.9)
_above = partial(between, 1.2, 3.0)

SAMPLES = {
    "sin": Entry(of_one(complex_draw=complex_normal), torch="sin"),
    "cos": Entry(of_one(complex_draw=complex_normal), torch="cos"),
    "tan": Entry(of_one(_inside, complex_draw=complex_normal), torch="tan"),
    "asin": Entry(of_one(_inside, complex_draw=complex_normal), torch="asin"),
    "acos": Entry(of_one(_inside, complex_draw=complex_normal), torch="acos"),
    "atan": Entry(of_one(complex_draw=complex_normal), torch="atan"),
    "sinh": Entry(of_one(complex_draw=complex_normal), torch="sinh"),
    "cosh": Entry(of_one(complex_draw=complex_normal), torch="cosh"),
    "tanh": Entry(of_one(complex_draw=complex_normal), torch="tanh"),
    "asinh": Entry(of_one(complex_draw=complex_normal), torch="asinh"),
    "acosh": Entry(of_one(_above, complex_draw=complex_normal), torch="acosh"),
    "atanh": Entry(of_one(_inside, complex_draw=complex_normal), torch="atanh"),
    "atan2": Entry(of_two(positive, positive), torch="atan2"),
    "hypot": Entry(of_two(positive, positive), torch="hypot"),
}
