"""Taking parts of a value, and putting parts into one."""

from typing import Any

from telegrad.rules.primitive import LINEAR, SAME, Primitive

GETITEM = Primitive(
    "getitem",
    saves=("x.shape",),
    vjp=(lambda xp, g, s: xp.index_add(xp.zeros(s.x_shape, dtype=g.dtype), g, index=s.index),),
    jvp=(LINEAR,),
    options=("index",),
    exact=True,
)

INDEX_ADD = Primitive(
    "index_add",
    vjp=(SAME, lambda xp, g, s: xp.getitem(g, index=s.index)),
    jvp=(
        SAME,
        lambda xp, t, s: xp.index_add(xp.zeros_like(s.out), t, index=s.index),
    ),
    options=("index",),
)

# Only for indices that name no place twice, except with a value that is the same for all.
INDEX_SET = Primitive(
    "index_set",
    vjp=(
        lambda xp, g, s: xp.index_set(g, xp.zeros((), dtype=g.dtype), index=s.index),
        lambda xp, g, s: xp.getitem(g, index=s.index),
    ),
    jvp=(
        lambda xp, t, s: xp.index_set(t, xp.zeros((), dtype=t.dtype), index=s.index),
        lambda xp, t, s: xp.index_set(xp.zeros_like(s.out), t, index=s.index),
    ),
    options=("index",),
)


def places_along(xp: Any, indices: Any, axis: int, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return the index for which ``x[index]`` is ``take_along_axis(x, indices, axis=axis)``."""
    grid: list[Any] = []
    for each, length in enumerate(shape):
        ruler = tuple(-1 if other == each else 1 for other in range(len(shape)))
        grid.append(indices if each == axis else xp.reshape(xp.arange(length), ruler))
    return tuple(grid)


def _take_along_axis_vjp(xp: Any, g: Any, s: Any) -> Any:
    places = places_along(xp, s.indices, s.axis, s.x_shape)
    return xp.index_add(xp.zeros(s.x_shape, dtype=g.dtype), g, index=places)


TAKE_ALONG_AXIS = Primitive(
    "take_along_axis",
    inputs=("x", "indices"),
    saves=("indices x.shape", ""),
    vjp=(_take_along_axis_vjp, None),
    jvp=(LINEAR, None),
    options=("axis",),
)
