"""Taking parts of a value, and putting parts into one."""

from telegrad.rules.primitive import LINEAR, SAME, Primitive

__all__ = ["GETITEM", "INDEX_ADD", "INDEX_SET", "ROWS"]

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

ROWS = (GETITEM, INDEX_ADD, INDEX_SET)
