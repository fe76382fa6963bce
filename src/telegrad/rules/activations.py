"""Activations: functions of one value that networks use.

Those that are a product with a sigmoid or a distribution function save only their argument and
compute that factor again, which costs less than the memory would.
"""

import math
from typing import Any

from telegrad.rules.primitive import of_slopes
from telegrad.rules.special import normal_density

RELU = of_slopes("relu", ("out",), lambda xp, v, s: xp.where_nonzero(v, s.out), floating=False)
SIGMOID = of_slopes("sigmoid", ("out",), lambda xp, v, s: v * (s.out - s.out * s.out))

LOG_SIGMOID = of_slopes(
    "log_sigmoid",
    ("x",),
    lambda xp, v, s: v * xp.sigmoid(-s.x),
    forward=lambda xp, x: -xp.softplus(-x),
)

SOFTPLUS = of_slopes("softplus", ("x",), lambda xp, v, s: v * xp.sigmoid(s.x))


def _silu_rule(xp: Any, v: Any, s: Any) -> Any:
    gate = xp.sigmoid(s.x)
    return v * (gate + s.x * (gate - gate * gate))


SILU = of_slopes("silu", ("x",), _silu_rule, forward=lambda xp, x: x * xp.sigmoid(x))


GELU = of_slopes(
    "gelu",
    ("x",),
    lambda xp, v, s: v * (xp.ndtr(s.x) + s.x * normal_density(xp, s.x)),
    forward=lambda xp, x: x * xp.ndtr(x),
)

# Of the approximation x (1 + tanh(_ROOT (x + _CUBE x³))) / 2.
_ROOT = math.sqrt(2 / math.pi)
_CUBE = 0.044715


def _gelu_tanh_rule(xp: Any, v: Any, s: Any) -> Any:
    square = s.x * s.x
    bend = xp.tanh(s.x * (square * (_ROOT * _CUBE) + _ROOT))
    slope = (1 - bend * bend) * (square * (3 * _ROOT * _CUBE) + _ROOT)
    return v * ((bend + 1) * 0.5 + s.x * slope * 0.5)


GELU_TANH = of_slopes(
    "gelu_tanh",
    ("x",),
    _gelu_tanh_rule,
    forward=lambda xp, x: x * (xp.tanh(x * (x * x * (_ROOT * _CUBE) + _ROOT)) + 1) * 0.5,
)
