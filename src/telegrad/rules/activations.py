"""Activations: functions of one value that networks use.

Those that are a product with a sigmoid or a distribution function save the argument alone and
compute that factor again: it costs less than the memory.
"""

import math
from typing import Any

from telegrad.rules.primitive import Primitive
from telegrad.rules.special import normal_density

__all__ = [
    "GELU",
    "GELU_TANH",
    "LOG_SIGMOID",
    "RELU",
    "ROWS",
    "SIGMOID",
    "SILU",
    "SOFTPLUS",
]


RELU = Primitive(
    "relu",
    saves=("out",),
    vjp=(lambda xp, g, s: xp.where_nonzero(g, s.out),),
    jvp=(lambda xp, t, s: xp.where_nonzero(t, s.out),),
    elementwise=True,
    floating=True,
)

SIGMOID = Primitive(
    "sigmoid",
    saves=("out",),
    vjp=(lambda xp, g, s: g * (s.out - s.out * s.out),),
    jvp=(lambda xp, t, s: t * (s.out - s.out * s.out),),
    elementwise=True,
    floating=True,
)

LOG_SIGMOID = Primitive(
    "log_sigmoid",
    forward=lambda xp, x: -xp.softplus(-x),
    saves=("x",),
    vjp=(lambda xp, g, s: g * xp.sigmoid(-s.x),),
    jvp=(lambda xp, t, s: t * xp.sigmoid(-s.x),),
    elementwise=True,
    floating=True,
)

SOFTPLUS = Primitive(
    "softplus",
    saves=("x",),
    vjp=(lambda xp, g, s: g * xp.sigmoid(s.x),),
    jvp=(lambda xp, t, s: t * xp.sigmoid(s.x),),
    elementwise=True,
    floating=True,
)


def _silu_rule(xp: Any, v: Any, s: Any) -> Any:
    gate = xp.sigmoid(s.x)
    return v * (gate + s.x * (gate - gate * gate))


SILU = Primitive(
    "silu",
    forward=lambda xp, x: x * xp.sigmoid(x),
    saves=("x",),
    vjp=(_silu_rule,),
    jvp=(_silu_rule,),
    elementwise=True,
    floating=True,
)


def _gelu_rule(xp: Any, v: Any, s: Any) -> Any:
    return v * (xp.ndtr(s.x) + s.x * normal_density(xp, s.x))


GELU = Primitive(
    "gelu",
    forward=lambda xp, x: x * xp.ndtr(x),
    saves=("x",),
    vjp=(_gelu_rule,),
    jvp=(_gelu_rule,),
    elementwise=True,
    floating=True,
)

_ROOT = math.sqrt(2 / math.pi)
_CUBE = 0.044715


def _gelu_tanh_rule(xp: Any, v: Any, s: Any) -> Any:
    square = s.x * s.x
    bend = xp.tanh(s.x * (square * (_ROOT * _CUBE) + _ROOT))
    slope = (1 - bend * bend) * (square * (3 * _ROOT * _CUBE) + _ROOT)
    return v * ((bend + 1) * 0.5 + s.x * slope * 0.5)


GELU_TANH = Primitive(
    "gelu_tanh",
    forward=lambda xp, x: x * (xp.tanh(x * (x * x * (_ROOT * _CUBE) + _ROOT)) + 1) * 0.5,
    saves=("x",),
    vjp=(_gelu_tanh_rule,),
    jvp=(_gelu_tanh_rule,),
    elementwise=True,
    floating=True,
)

ROWS = (RELU, SIGMOID, LOG_SIGMOID, SOFTPLUS, SILU, GELU, GELU_TANH)
