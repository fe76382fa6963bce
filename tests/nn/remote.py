"""Functions that the tests call on another worker."""

from typing import Any

__all__ = ["apply", "kinds"]


def kinds(module: Any) -> list[str]:
    """The classes of a module's parameters, as they arrived."""
    return [type(p).__name__ for p in module.parameters()]


def apply(module: Any, x: Any) -> Any:
    """What the module makes of x."""
    return module(x)
