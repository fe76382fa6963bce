"""Samples of ``rules/magnitude.py``."""

from typing import Any

from tests.rules.samples.families import of_one, of_two
from tests.rules.samples.sample import Entry, complex_normal, constant, distinct, sample

__all__ = ["SAMPLES"]

_CUSP = dict.fromkeys(
    ("reverse", "forward", "second"),
    "a cusp: one-sided slopes differ, so finite differences mean nothing",
)


def _sign(torch: Any, x: Any) -> Any:
    return torch.sgn(x)


SAMPLES = {
    "abs": Entry(
        (
            *of_one(distinct, complex_draw=complex_normal),
            sample("zero", constant([0.0, 1.0]), without=_CUSP),
            sample("complex zero", constant([0j, 1j]), without=_CUSP),
        ),
        torch="abs",
    ),
    "sign": Entry(
        (
            *of_one(distinct, complex_draw=complex_normal),
            sample("zero", constant([0.0, 1.0]), without=_CUSP),
            sample("complex zero", constant([0j, 1j]), without=_CUSP),
        ),
        torch=_sign,
    ),
    "copysign": Entry(
        (
            *of_two(distinct, distinct),
            sample("zero", constant([0.0, -1.0]), constant([-1.0, 1.0]), without=_CUSP),
        ),
        torch="copysign",
    ),
}
