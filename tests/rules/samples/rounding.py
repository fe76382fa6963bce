"""Samples of ``rules/rounding.py``."""

import numpy as np
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
    "step": Entry(
        of_one(distinct),
        numpy=lambda x: np.heaviside(x, 0.0),
        # PyTorch's heaviside has no derivative.
        torch=lambda torch, x: torch.relu(torch.sign(x)),
    ),
    "trunc": Entry(of_one(distinct), torch="trunc"),
}
