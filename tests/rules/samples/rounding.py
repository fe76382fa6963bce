"""Samples of ``rules/rounding.py``."""

from tests.rules.samples.families import of_one, of_two
from tests.rules.samples.sample import Entry, distinct

__all__ = ["SAMPLES"]

# ``distinct`` draws are nowhere near a whole or a half number.
SAMPLES = {
    "ceil": Entry(of_one(distinct), torch="ceil"),
    "floor": Entry(of_one(distinct), torch="floor"),
    # PyTorch's nextafter has no derivative.
    "nextafter": Entry(of_two(distinct, distinct), torch=lambda torch, x, y: x + 0 * y),
    "round": Entry(of_one(distinct), torch="round"),
    "trunc": Entry(of_one(distinct), torch="trunc"),
}
