"""The versions of PyTorch that the bridge supports; checked once, when PyTorch is first needed."""

import re
from typing import Final

from telegrad.errors import UsageError

OLDEST: Final = (2, 11)
"""The oldest version that has passed the tests."""
TESTED: Final = (2, 13)
"""The version that the tests run with."""


def check(version: str) -> None:
    """Raise UsageError for a version that is too old or can't be parsed."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        raise UsageError(
            f"expected PyTorch {OLDEST[0]}.{OLDEST[1]} or newer (tested with {TESTED[0]}."
            f"{TESTED[1]}), got {version}; install one with: pip install torch"
        )
