"""Which versions of PyTorch the bridge is made for; checked once, when PyTorch is first needed."""

import re
from typing import Final

from telegrad.errors import UsageError

OLDEST: Final = (2, 11)
"""The oldest that the tests have been run with."""
TESTED: Final = (2, 13)
"""The one that the tests run with."""


def check(version: str) -> None:
    """Raise for a version that is too old or that can't be read."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        raise UsageError(
            f"expected PyTorch {OLDEST[0]}.{OLDEST[1]} or newer (tested with {TESTED[0]}."
            f"{TESTED[1]}), got {version}; install one with: pip install torch"
        )
