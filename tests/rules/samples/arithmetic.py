"""Samples of ``rules/arithmetic.py``."""

from tests.rules.samples.families import of_one, of_two
from tests.rules.samples.sample import (
    Entry,
    between,
    complex_normal,
    constant,
    normal,
    positive,
    sample,
)

__all__ = ["SAMPLES"]

SAMPLES = {
    "add": Entry(of_two(is_complex=True), torch="add"),
    "subtract": Entry(of_two(is_complex=True), torch="subtract"),
    "multiply": Entry(of_two(is_complex=True), torch="multiply"),
    "divide": Entry(of_two(normal, positive, is_complex=True), torch="divide"),
    "negative": Entry(of_one(complex_draw=complex_normal), torch="negative"),
    "positive": Entry(of_one(complex_draw=complex_normal), torch="positive"),
    "floor_divide": Entry(
        (
            sample("plain", constant([[3.3, -1.7]]), constant([[0.9, 0.8]])),
            sample("broadcast", constant([[3.3, -1.7]]), constant([[0.9], [-0.35]])),
            sample("0-d", constant(3.3), constant(0.9)),
            sample("zero-size", normal(0, 2), positive(2)),
        ),
        torch=lambda torch, x, y: torch.floor(x / y),
    ),
    "remainder": Entry(
        (
            sample("plain", constant([[3.3, -1.7]]), constant([[0.9, 0.8]])),
            sample("broadcast", constant([[3.3, -1.7]]), constant([[0.9], [-0.35]])),
            sample("0-d", constant(3.3), constant(0.9)),
            sample("zero-size", normal(0, 2), positive(2)),
        ),
        torch="remainder",
    ),
    "square": Entry(of_one(complex_draw=complex_normal), torch="square"),
    "reciprocal": Entry(of_one(positive, complex_draw=complex_normal), torch="reciprocal"),
    "pow": Entry(
        (
            *of_two(positive, normal),
            sample("whole exponents", normal(2, 2), constant([[2, 3], [0, -1]])),
            sample("large base", between(3.0, 4.0, 2), between(-2.0, 2.0, 2)),
            sample("complex", complex_normal(2, 2), complex_normal(2, 2)),
            sample("complex exponents", constant([[-1.5, 0.7]]), complex_normal(2, 2)),
        ),
        torch="pow",
    ),
}
