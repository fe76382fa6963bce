"""The versions of JAX that will do; checked once, before anything of JAX is imported."""

import importlib.metadata
import re
from typing import Final

from telegrad.errors import UsageError

OLDEST: Final = (0, 10)
"""The version that the tests run with."""


def check(version: str) -> None:
    """Raise for a version that is too old or that can't be read."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        raise UsageError(
            f"expected JAX {OLDEST[0]}.{OLDEST[1]} or newer for telegrad.jax, got {version}; "
            "install one with: pip install --upgrade jax"
        )


def require() -> None:
    """Raise unless a version of JAX that will do is installed, without importing it."""
    try:
        version = importlib.metadata.version("jax")
    except importlib.metadata.PackageNotFoundError:
        raise ModuleNotFoundError(
            f"telegrad.jax needs JAX {OLDEST[0]}.{OLDEST[1]} or newer, and none is installed; "
            "install it with: pip install 'telegrad[jax]'",
            name="jax",
        ) from None
    check(version)
