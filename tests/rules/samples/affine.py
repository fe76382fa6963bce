"""Samples of ``rules/affine.py``."""

from tests.rules.samples.sample import Entry, complex_normal, normal, sample

__all__ = ["SAMPLES"]

SAMPLES = {
    "affine": Entry(
        (
            sample("matrix", normal(3, 2), normal(4, 2)),
            sample("vector", normal(2), normal(3, 2)),
            sample("batched", normal(2, 2, 2), normal(3, 2)),
            sample("zero-size", normal(0, 2), normal(3, 2)),
            sample("complex", complex_normal(2, 2), complex_normal(1, 2)),
        ),
        numpy=lambda x, weight: x @ weight.T,
        torch=lambda torch, x, weight: torch.nn.functional.linear(x, weight),
    ),
    "affine_biased": Entry(
        (
            sample("matrix", normal(3, 2), normal(4, 2), normal(4)),
            sample("vector", normal(2), normal(3, 2), normal(3)),
            sample("batched", normal(2, 2, 2), normal(3, 2), normal(3)),
            sample("zero-size", normal(0, 2), normal(3, 2), normal(3)),
            sample("complex", complex_normal(2, 2), complex_normal(1, 2), complex_normal(1)),
        ),
        numpy=lambda x, weight, bias: x @ weight.T + bias,
        torch=lambda torch, x, weight, bias: torch.nn.functional.linear(x, weight, bias),
    ),
}
