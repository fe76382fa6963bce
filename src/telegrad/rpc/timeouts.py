"""Timeouts as users give them, in seconds: one check and one error for all."""

import math
from numbers import Real
from typing import Any, Final, cast

from telegrad.errors import UsageError

LONGEST_WAIT: Final = 86400.0
"""The longest wait, in seconds, that every system accepts."""


def seconds(value: Any, name: str = "a timeout") -> float:
    """Return seconds, 0 or more, perhaps infinite, as a float; the error calls it `name`."""
    if type(value) is float and value >= 0:
        # The usual case first: the check for Real takes longer than the rest of this function.
        return value
    if isinstance(value, Real):
        try:
            number = float(value)
        except OverflowError:
            # An integer too large for a float.
            number = math.inf if cast(int, value) > 0 else -math.inf
        # False for NaN, which no clock ever reaches.
        if number >= 0:
            return number
    raise UsageError(f"expected {name} of 0 or more seconds, got {value!r:.100}")
