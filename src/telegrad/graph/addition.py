"""Adding two cotangents, of any framework."""

from typing import Any


def added(a: Any, b: Any) -> Any:
    """Return the sum of two cotangents; neither is changed.

    A sum has no sides, but a framework may refuse to add a cotangent of one layout to one of
    another, and only in one order: then the other order is tried.
    """
    try:
        return a + b
    except RuntimeError:
        return b + a
