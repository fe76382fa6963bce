"""Convolution and its two adjoints: bilinear functions, each with the other two as its rules.

So three kernels serve all orders and both modes; ``arrays/plain/convolution.py`` states them.
"""

from typing import Any

from telegrad.rules.primitive import LINEAR, Primitive


def _how(s: Any) -> dict[str, Any]:
    return {"strides": s.strides, "pads": s.pads, "dilations": s.dilations}


CONVOLVE = Primitive(
    "convolve",
    inputs=("x", "w"),
    saves=("w x.shape", "x w.shape"),
    vjp=(
        lambda xp, g, s: xp.convolve_input(g, s.w, shape=s.x_shape, **_how(s)),
        lambda xp, g, s: xp.convolve_weight(s.x, g, shape=s.w_shape, **_how(s)),
    ),
    jvp=(LINEAR, LINEAR),
    options=("strides", "pads", "dilations"),
    by_itself="nothing",
)

CONVOLVE_INPUT = Primitive(
    "convolve_input",
    inputs=("g", "w"),
    saves=("w", "g w.shape"),
    vjp=(
        lambda xp, g, s: xp.convolve(g, s.w, **_how(s)),
        lambda xp, g, s: xp.convolve_weight(g, s.g, shape=s.w_shape, **_how(s)),
    ),
    jvp=(LINEAR, LINEAR),
    options=("shape", "strides", "pads", "dilations"),
)

CONVOLVE_WEIGHT = Primitive(
    "convolve_weight",
    inputs=("x", "g"),
    saves=("g x.shape", "x"),
    vjp=(
        lambda xp, g, s: xp.convolve_input(s.g, g, shape=s.x_shape, **_how(s)),
        lambda xp, g, s: xp.convolve(s.x, g, **_how(s)),
    ),
    jvp=(LINEAR, LINEAR),
    options=("shape", "strides", "pads", "dilations"),
)
