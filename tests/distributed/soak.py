"""How much is enough: a little in ``make test``, a lot in ``make soak-simulation``."""

import os

__all__ = ["SOAK", "amount"]

SOAK = os.environ.get("TELEGRAD_SOAK") == "1"


def amount(usual, long):
    """`usual`, or `long` where there is time."""
    return long if SOAK else usual
