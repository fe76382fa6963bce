"""Activations: functions of one value that networks use."""

from typing import Any

from telegrad.rules.primitive import Primitive

__all__ = ["RELU", "ROWS", "SIGMOID"]


def _relu(xp: Any, x: Any) -> Any:
    return xp.maximum(x, xp.zeros((), dtype=xp.dtype_of(x)))


RELU = Primitive(
    "relu",
    forward=_relu,
    saves=("out",),
    vjp=(lambda xp, g, s: g * xp.astype(s.out > 0, g.dtype),),
    jvp=(lambda xp, t, s: t * xp.astype(s.out > 0, t.dtype),),
    elementwise=True,
    floating=True,
)


def _sigmoid(xp: Any, x: Any) -> Any:
    # tanh neither overflows nor loses digits at either end.
    return xp.tanh(x * 0.5) * 0.5 + 0.5


SIGMOID = Primitive(
    "sigmoid",
    forward=_sigmoid,
    saves=("out",),
    vjp=(lambda xp, g, s: g * (s.out - s.out * s.out),),
    jvp=(lambda xp, t, s: t * (s.out - s.out * s.out),),
    elementwise=True,
    floating=True,
)

ROWS = (RELU, SIGMOID)
