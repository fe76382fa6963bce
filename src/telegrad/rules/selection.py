"""Choosing between values."""

from typing import Any

from telegrad.rules.primitive import LINEAR, ZERO, Primitive, Rule, of_slopes


def _chosen(xp: Any, v: Any, chosen: Any) -> Any:
    return xp.where(chosen, v, xp.zeros_like(v))


_WHERE: tuple[Rule | None, ...] = (
    None,
    lambda xp, v, s: _chosen(xp, v, s.condition),
    lambda xp, v, s: _chosen(xp, v, xp.logical_not(s.condition)),
)

WHERE = Primitive(
    "where",
    inputs=("condition", "x", "y"),
    saves=("", "condition", "condition"),
    vjp=_WHERE,
    jvp=_WHERE,
)


# Beyond the standard: x where y is not zero, else zero. A slope written with it can be
# differentiated by y again, which gives zero; one written with a comparison would be a constant.
WHERE_NONZERO = Primitive(
    "where_nonzero",
    saves=("y", ""),
    vjp=(lambda xp, g, s: xp.where_nonzero(g, s.y), ZERO),
    jvp=(LINEAR, ZERO),
    elementwise=True,
)


def _larger(xp: Any, v: Any, a: Any, b: Any) -> Any:
    # Equal values share the gradient, and NaN, which is the result, keeps it, as in PyTorch.
    return xp.where(a < b, xp.zeros_like(v), xp.where(a == b, v * 0.5, v))


MAXIMUM = of_slopes(
    "maximum",
    ("x y", "x y"),
    lambda xp, v, s: _larger(xp, v, s.x, s.y),
    lambda xp, v, s: _larger(xp, v, s.y, s.x),
    floating=False,
)

MINIMUM = of_slopes(
    "minimum",
    ("x y", "x y"),
    lambda xp, v, s: _larger(xp, v, s.y, s.x),
    lambda xp, v, s: _larger(xp, v, s.x, s.y),
    floating=False,
)

# Unlike maximum and minimum, a value on the bound keeps the whole gradient, as in PyTorch's clamp.
CLIP_LOW = of_slopes(
    "clip_low",
    ("x low", "x low"),
    lambda xp, v, s: _chosen(xp, v, s.x >= s.low),
    lambda xp, v, s: _chosen(xp, v, s.x < s.low),
    forward=lambda xp, x, low: xp.maximum(x, low),
    inputs=("x", "low"),
    floating=False,
)

CLIP_HIGH = of_slopes(
    "clip_high",
    ("x high", "x high"),
    lambda xp, v, s: _chosen(xp, v, s.x <= s.high),
    lambda xp, v, s: _chosen(xp, v, s.x > s.high),
    forward=lambda xp, x, high: xp.minimum(x, high),
    inputs=("x", "high"),
    floating=False,
)


def _triangle(name: str, vjp: Rule) -> Primitive:
    return Primitive(name, vjp=(vjp,), jvp=(LINEAR,), options=("k",), exact=True)


TRIL = _triangle("tril", lambda xp, g, s: xp.tril(g, k=s.k))
TRIU = _triangle("triu", lambda xp, g, s: xp.triu(g, k=s.k))
