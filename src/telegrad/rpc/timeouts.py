"""Seconds as users give them: one check, and one error, wherever a timeout is taken."""

import math
from numbers import Real
from typing import Any, Final, cast

from telegrad.errors import UsageError

LONGEST_WAIT: Final = 86400.0
"""As many seconds as every system can be told to wait at once."""


def seconds(value: Any, name: str = "a timeout") -> float:
    """Return the seconds, 0 or more and perhaps infinitely many, as a float; `name` is theirs."""
    if type(value) is float and value >= 0:
        # The usual case: asking for any real number takes longer than all the rest.
        return value
    if isinstance(value, Real):
        try:
            number = float(value)
        except OverflowError:
            # An integer beyond all floats.
            number = math.inf if cast(int, value) > 0 else -math.inf
        # False for nan, which is refused: no clock ever reaches it.
        if number >= 0:
            return number
    raise UsageError(f"expected {name} of 0 or more seconds, got {value!r:.100}")
