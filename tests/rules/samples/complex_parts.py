"""Samples of ``rules/complex_parts.py``."""

from tests.rules.samples.sample import Entry, Sample, complex_normal, sample

__all__ = ["SAMPLES"]


def _complex() -> tuple[Sample, ...]:
    return (
        sample("plain", complex_normal(2, 3)),
        sample("0-d", complex_normal()),
        sample("zero-size", complex_normal(0, 3)),
    )


SAMPLES = {
    "conj": Entry(_complex(), torch=lambda torch, x: torch.conj_physical(x)),
    "real": Entry(_complex(), torch="real"),
    "imag": Entry(_complex(), torch="imag"),
}
