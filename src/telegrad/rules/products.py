"""Products of matrices and vectors."""

from typing import Any

from telegrad.rules.primitive import LINEAR, Primitive

__all__ = ["MATMUL", "MATRIX_PRODUCT", "MATRIX_TRANSPOSE", "ROWS"]

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
    forward="matmul",
    saves=("y", "x"),
    vjp=(lambda xp, g, s: xp.matmul(g, s.y.mT), lambda xp, g, s: xp.matmul(s.x.mT, g)),
    jvp=(LINEAR, LINEAR),
)

ROWS = (MATMUL, MATRIX_PRODUCT, MATRIX_TRANSPOSE)
