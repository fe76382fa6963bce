"""The same values in another shape or order."""

from typing import Any

from telegrad.rules.primitive import LINEAR, SAME, Primitive

RESHAPE = Primitive(
    "reshape",
    forward=lambda xp, x, *, shape: xp.reshape(x, shape),
    saves=("x.shape",),
    vjp=(lambda xp, g, s: xp.reshape(g, s.x_shape),),
    jvp=(LINEAR,),
    options=("shape",),
    exact=True,
)


def _inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


PERMUTE_DIMS = Primitive(
    "permute_dims",
    forward=lambda xp, x, *, axes: xp.permute_dims(x, axes),
    vjp=(lambda xp, g, s: xp.permute_dims(g, _inverse(s.axes)),),
    jvp=(LINEAR,),
    options=("axes",),
    exact=True,
)

# The edge sums over what was stretched.
BROADCAST_TO = Primitive(
    "broadcast_to",
    forward=lambda xp, x, *, shape: xp.broadcast_to(x, shape),
    vjp=(SAME,),
    jvp=(LINEAR,),
    options=("shape",),
)


# The edge casts back.
ASTYPE = Primitive(
    "astype",
    forward=lambda xp, x, *, dtype: xp.astype(x, dtype),
    vjp=(SAME,),
    jvp=(LINEAR,),
    options=("dtype",),
)

CLONE = Primitive(
    "clone", forward=lambda xp, x: xp.asarray(x, copy=True), vjp=(SAME,), jvp=(LINEAR,)
)

FLIP = Primitive(
    "flip",
    vjp=(lambda xp, g, s: xp.flip(g, axis=s.axis),),
    jvp=(LINEAR,),
    options=("axis",),
    exact=True,
)


def _opposite(shift: Any) -> Any:
    return tuple(-each for each in shift) if isinstance(shift, tuple) else -shift


ROLL = Primitive(
    "roll",
    forward=lambda xp, x, *, shift, axis: xp.roll(x, shift, axis=axis),
    vjp=(lambda xp, g, s: xp.roll(g, _opposite(s.shift), axis=s.axis),),
    jvp=(LINEAR,),
    options=("shift", "axis"),
    exact=True,
)
