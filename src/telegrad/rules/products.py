"""Products of matrices and vectors, and the diagonals of matrices."""

from typing import Any

from telegrad.rules.primitive import LINEAR, Primitive

MATRIX_TRANSPOSE = Primitive(
    "matrix_transpose", vjp=(lambda xp, g, s: g.mT,), jvp=(LINEAR,), exact=True
)


def _matmul_by_left(xp: Any, g: Any, s: Any) -> Any:
    # A vector on either side is a matrix with one row or column that matmul took away again.
    if len(s.y.shape) == 1:
        return xp.expand_dims(g, axis=-1) * s.y if len(s.x_shape) > 1 else g * s.y
    if len(s.x_shape) == 1:
        return xp.matmul(xp.expand_dims(g, axis=-2), s.y.mT)[..., 0, :]
    return xp.matmul(g, s.y.mT)


def _matmul_by_right(xp: Any, g: Any, s: Any) -> Any:
    if len(s.x.shape) == 1:
        if len(s.y_shape) == 1:
            return g * s.x
        return xp.expand_dims(s.x, axis=-1) * xp.expand_dims(g, axis=-2)
    if len(s.y_shape) == 1:
        return xp.matmul(s.x.mT, xp.expand_dims(g, axis=-1))[..., 0]
    return xp.matmul(s.x.mT, g)


MATMUL = Primitive(
    "matmul",
    saves=("y x.shape", "x y.shape"),
    vjp=(_matmul_by_left, _matmul_by_right),
    jvp=(LINEAR, LINEAR),
)

# Two matrices, by far the most frequent case: nothing was stretched, no vector took an axis away.
MATRIX_PRODUCT = Primitive(
    "matrix_product",
    saves=("y", "x"),
    vjp=(
        lambda xp, g, s: xp.matrix_product(g, s.y.mT),
        lambda xp, g, s: xp.matrix_product(s.x.mT, g),
    ),
    jvp=(LINEAR, LINEAR),
)

# The sum of conj(x) * y along an axis, counted from the end, so that it survives broadcasting.
VECDOT = Primitive(
    "vecdot",
    saves=("y", "x"),
    vjp=(
        lambda xp, g, s: xp.expand_dims(xp.conj(g), axis=s.axis) * s.y,
        lambda xp, g, s: xp.expand_dims(g, axis=s.axis) * s.x,
    ),
    jvp=(LINEAR, LINEAR),
    options=("axis",),
    holomorphic=False,
)

CROSS = Primitive(
    "cross",
    forward="linalg.cross",
    saves=("y", "x"),
    vjp=(
        lambda xp, g, s: xp.linalg.cross(s.y, g, axis=s.axis),
        lambda xp, g, s: xp.linalg.cross(g, s.x, axis=s.axis),
    ),
    jvp=(LINEAR, LINEAR),
    options=("axis",),
)


def _on_diagonal(xp: Any, g: Any, s: Any) -> Any:
    """Return a matrix of the argument's shape, `g` on the diagonal that was taken, else zero."""
    square = xp.diagonal_matrix(g)
    length = g.shape[-1]
    if tuple(square.shape) == s.x_shape:
        return square
    # A diagonal outside of the matrix is empty; an index may not start there.
    top, left = (max(-s.offset, 0), max(s.offset, 0)) if length else (0, 0)
    index = (Ellipsis, slice(top, top + length), slice(left, left + length))
    return xp.index_set(xp.zeros(s.x_shape, dtype=xp.dtype_of(g)), square, index=index)


DIAGONAL = Primitive(
    "diagonal",
    forward="linalg.diagonal",
    saves=("x.shape",),
    vjp=(_on_diagonal,),
    jvp=(LINEAR,),
    options=("offset",),
)

# Beyond the standard: matrices with the argument on their diagonal.
DIAGONAL_MATRIX = Primitive(
    "diagonal_matrix", vjp=(lambda xp, g, s: xp.linalg.diagonal(g),), jvp=(LINEAR,)
)


def _trace_vjp(xp: Any, g: Any, s: Any) -> Any:
    rows, columns = s.x_shape[-2:]
    ones = xp.eye(rows, columns, k=s.offset, dtype=xp.dtype_of(g))
    return xp.reshape(g, (*g.shape, 1, 1)) * ones


TRACE = Primitive(
    "trace",
    forward="linalg.trace",
    saves=("x.shape",),
    vjp=(_trace_vjp,),
    jvp=(LINEAR,),
    options=("offset",),
)
