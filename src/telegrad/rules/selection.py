"""Choosing between values."""

from typing import Any

from telegrad.rules.primitive import Primitive

__all__ = ["MAXIMUM", "MINIMUM", "ROWS", "WHERE"]


def _chosen(xp: Any, v: Any, chosen: Any) -> Any:
    return xp.where(chosen, v, xp.zeros_like(v))


WHERE = Primitive(
    "where",
    inputs=("condition", "x", "y"),
    saves=("", "condition", "condition"),
    vjp=(
        None,
        lambda xp, g, s: _chosen(xp, g, s.condition),
        lambda xp, g, s: _chosen(xp, g, xp.logical_not(s.condition)),
    ),
    jvp=(
        None,
        lambda xp, t, s: _chosen(xp, t, s.condition),
        lambda xp, t, s: _chosen(xp, t, xp.logical_not(s.condition)),
    ),
)


def _larger(xp: Any, v: Any, a: Any, b: Any) -> Any:
    # Equal values share the gradient, as in PyTorch.
    zero = xp.zeros_like(v)
    return xp.where(a > b, v, xp.where(a == b, v * 0.5, zero))


MAXIMUM = Primitive(
    "maximum",
    saves=("x y", "x y"),
    vjp=(lambda xp, g, s: _larger(xp, g, s.x, s.y), lambda xp, g, s: _larger(xp, g, s.y, s.x)),
    jvp=(lambda xp, t, s: _larger(xp, t, s.x, s.y), lambda xp, t, s: _larger(xp, t, s.y, s.x)),
    elementwise=True,
)

MINIMUM = Primitive(
    "minimum",
    saves=("x y", "x y"),
    vjp=(lambda xp, g, s: _larger(xp, g, s.y, s.x), lambda xp, g, s: _larger(xp, g, s.x, s.y)),
    jvp=(lambda xp, t, s: _larger(xp, t, s.y, s.x), lambda xp, t, s: _larger(xp, t, s.x, s.y)),
    elementwise=True,
)

ROWS = (WHERE, MAXIMUM, MINIMUM)
