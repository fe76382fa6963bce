"""Borders around a value, windows that slide over it, and the sum of windows laid back.

Convolution and pooling consist of these: windows, and then a product or a reduction.
"""

from typing import Any

from telegrad.arrays.plain.placement import inner
from telegrad.rules.primitive import LINEAR, Primitive

PAD = Primitive(
    "pad",
    saves=("x.shape",),
    vjp=(lambda xp, g, s: xp.getitem(g, index=inner(s.x_shape, s.pad_width)),),
    jvp=(lambda xp, t, s: xp.pad(t, s.pad_width),),
    options=("pad_width", "constant_values"),
    exact=True,
)


def _how(s: Any) -> dict[str, Any]:
    return {"axes": s.axes, "strides": s.strides, "dilations": s.dilations}


WINDOWS = Primitive(
    "windows",
    saves=("x.shape",),
    vjp=(lambda xp, g, s: xp.overlap_add(g, s.x_shape, **_how(s)),),
    jvp=(LINEAR,),
    options=("sizes", "axes", "strides", "dilations"),
    exact=True,
)

OVERLAP_ADD = Primitive(
    "overlap_add",
    saves=("x.shape",),
    vjp=(lambda xp, g, s: xp.windows(g, s.x_shape[len(s.shape) :], **_how(s)),),
    jvp=(LINEAR,),
    options=("shape", "axes", "strides", "dilations"),
    exact=True,
)
