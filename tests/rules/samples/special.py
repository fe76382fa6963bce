"""Samples of ``rules/special.py``."""

import scipy.special
from tests.rules.samples.families import of_one
from tests.rules.samples.sample import (
    Entry,
    between,
    complex_normal,
    constant,
    positive,
    sample,
)

__all__ = ["SAMPLES"]

# Between the poles, which lie at zero and at the negative whole numbers.
_below_zero = constant([-0.5, -1.4, -2.6])

_complex = sample(
    "complex",
    complex_normal(2, 2),
    without={
        "strict": "the plain version is for real values",
        "torch": "PyTorch's is for real values",
    },
)

SAMPLES = {
    "erf": Entry((*of_one(), _complex), numpy=scipy.special.erf, torch="erf"),
    "erfc": Entry(
        (*of_one(), _complex, sample("small", between(3.0, 5.0, 3))),
        numpy=scipy.special.erfc,
        torch="erfc",
    ),
    "ndtr": Entry(
        (*of_one(), _complex, sample("small", between(-9.0, -4.0, 3))),
        numpy=scipy.special.ndtr,
        torch="special.ndtr",
    ),
    "lgamma": Entry(
        (*of_one(positive), sample("below zero", _below_zero)),
        numpy=scipy.special.gammaln,
        torch="lgamma",
    ),
    "digamma": Entry(
        (*of_one(positive), sample("below zero", _below_zero)),
        numpy=scipy.special.digamma,
        torch="digamma",
    ),
    "polygamma": Entry(
        (
            sample("n = 0", positive(2, 2), n=0),
            sample("n = 1", positive(2, 2), n=1),
            sample("n = 2, below zero", _below_zero, n=2),
            sample("0-d", positive(), n=3),
            sample("zero-size", positive(0, 2), n=1),
        ),
        numpy=lambda x, *, n: scipy.special.polygamma(n, x),
        torch=lambda torch, x, *, n: torch.polygamma(n, x),
    ),
}
