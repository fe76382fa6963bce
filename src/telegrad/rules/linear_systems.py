"""Inverses, determinants and the solution of linear systems."""

from typing import Any

from telegrad.rules.hermitian import adjoint, imag, is_complex
from telegrad.rules.primitive import LINEAR, NOT_DIFFERENTIABLE, Primitive

INV = Primitive(
    "inv",
    forward="linalg.inv",
    saves=("out",),
    vjp=(lambda xp, g, s: -xp.matmul(s.out.mT, xp.matmul(g, s.out.mT)),),
    jvp=(lambda xp, t, s: -xp.matmul(s.out, xp.matmul(t, s.out)),),
)


def _solved(xp: Any, a: Any, b: Any, is_vector: bool) -> Any:
    """Return ``a^-1 b``, where b may be a stack of vectors."""
    if is_vector:
        return xp.linalg.solve(a, xp.expand_dims(b, axis=-1))[..., 0]
    return xp.linalg.solve(a, b)


def _solve_by_matrix(xp: Any, right: Any, s: Any) -> Any:
    if len(s.y_shape) == 1:
        return -xp.expand_dims(right, axis=-1) * xp.expand_dims(s.out, axis=-2)
    return -xp.matmul(right, s.out.mT)


def _solve_jvp_by_matrix(xp: Any, t: Any, s: Any) -> Any:
    is_vector = len(s.y_shape) == 1
    if is_vector:
        moved = xp.matmul(t, xp.expand_dims(s.out, axis=-1))[..., 0]
    else:
        moved = xp.matmul(t, s.out)
    return -_solved(xp, s.x, moved, is_vector)


# A right side with one axis is a vector, with more a stack of matrices, as the standard says.
SOLVE = Primitive(
    "solve",
    forward="linalg.solve",
    saves=("x out y.shape", "x y.shape"),
    begin=lambda xp, g, s: _solved(xp, s.x.mT, g, len(s.y_shape) == 1),
    vjp=(_solve_by_matrix, lambda xp, right, s: right),
    jvp=(_solve_jvp_by_matrix, LINEAR),
)


def _triangle(xp: Any, x: Any, upper: bool) -> Any:
    return xp.triu(x) if upper else xp.tril(x)


def _triangular_jvp_by_matrix(xp: Any, t: Any, s: Any) -> Any:
    moved = xp.matmul(_triangle(xp, t, s.upper), s.out)
    return -xp.solve_triangular(s.x, moved, upper=s.upper)


# Beyond the standard. Only one triangle of x is read; the right side is a stack of matrices.
SOLVE_TRIANGULAR = Primitive(
    "solve_triangular",
    saves=("x out", "x"),
    begin=lambda xp, g, s: xp.solve_triangular(s.x.mT, g, upper=not s.upper),
    vjp=(
        lambda xp, right, s: -_triangle(xp, xp.matmul(right, s.out.mT), s.upper),
        lambda xp, right, s: right,
    ),
    jvp=(_triangular_jvp_by_matrix, LINEAR),
    options=("upper",),
)


def _over_matrix(xp: Any, value: Any) -> Any:
    """Return a number for each matrix, in a shape that multiplies the matrix."""
    return xp.reshape(value, (*value.shape, 1, 1))


DET = Primitive(
    "det",
    forward="linalg.det",
    saves=("x",),
    vjp=(lambda xp, g, s: _over_matrix(xp, g) * xp.cofactor(s.x),),
    jvp=(lambda xp, t, s: xp.sum(t * xp.cofactor(s.x), axis=(-2, -1)),),
)


def _cofactor_derivative(xp: Any, v: Any, s: Any) -> Any:
    # The cofactors are the gradient of the determinant, so their derivative is a Hessian, which is
    # symmetric: one formula is vjp and jvp.
    if not _is_far_from_singular(xp, s.x):
        return _singular_cofactor_derivative(xp, v, s.x)
    inverse, outer = xp.linalg.inv(s.x), xp.cofactor(s.x)
    slope = xp.linalg.trace(xp.matmul(inverse, v))
    return _over_matrix(xp, slope) * outer - xp.matmul(inverse.mT, xp.matmul(v.mT, outer))


def _is_far_from_singular(xp: Any, x: Any) -> bool:
    if 0 in x.shape:
        return True
    values = xp.linalg.svdvals(x)
    least = values[..., 0] * float(xp.finfo(xp.dtype_of(values)).eps) ** 0.5
    return bool(xp.all(values[..., -1] > least))


def _singular_cofactor_derivative(xp: Any, v: Any, x: Any) -> Any:
    # In the basis of the singular vectors x is diagonal, and the Hessian consists of products of
    # singular values: there is no division. Its own derivative needs distinct singular values.
    u, values, vh = xp.linalg.svd(x, full_matrices=False)
    pairs = xp.astype(_products_without_two(xp, values), xp.dtype_of(x))
    inner = xp.matmul(adjoint(xp, u), xp.matmul(v, adjoint(xp, vh)))
    on_diagonal = xp.matmul(pairs, xp.expand_dims(xp.linalg.diagonal(inner), axis=-1))
    turned = on_diagonal * xp.eye(values.shape[-1], dtype=xp.dtype_of(x)) - pairs * inner.mT
    phase = _over_matrix(xp, xp.linalg.det(u) * xp.linalg.det(vh))
    return phase * xp.matmul(xp.conj(u), xp.matmul(turned, xp.conj(vh)))


def _products_without_two(xp: Any, values: Any) -> Any:
    """Return at (i, j) the product of all values but the i-th and the j-th; zero for i = j."""
    n = values.shape[-1]
    one = xp.eye(n, dtype=xp.dtype_of(values))
    left_out = xp.reshape(one, (n, 1, n)) + xp.reshape(one, (1, n, n))
    spread = xp.reshape(values, (*values.shape[:-1], 1, 1, n))
    factors = xp.where(left_out > 0, xp.ones_like(spread), spread)
    return xp.prod(factors, axis=-1) * (1.0 - one)


COFACTOR = Primitive(
    "cofactor",
    saves=("x",),
    vjp=(_cofactor_derivative,),
    jvp=(_cofactor_derivative,),
)


def _slogdet_vjp(xp: Any, g: Any, s: Any) -> Any:
    g_sign, g_log = g
    if is_complex(xp, s.x):
        # The sign turns by i Im(tr(x^-1 dx)).
        g_log = xp.astype(g_log, xp.dtype_of(s.x)) - imag(xp, s.sign * xp.conj(g_sign))
    return _over_matrix(xp, g_log) * adjoint(xp, xp.linalg.inv(s.x))


def _slogdet_jvp(xp: Any, t: Any, s: Any) -> Any:
    slope = xp.linalg.trace(xp.linalg.solve(s.x, t))
    if is_complex(xp, s.x):
        return s.sign * imag(xp, slope), xp.real(slope)
    return xp.zeros_like(s.sign), slope


SLOGDET = Primitive(
    "slogdet",
    forward="linalg.slogdet",
    saves=("x sign",),
    vjp=(_slogdet_vjp,),
    jvp=(_slogdet_jvp,),
    outputs=("sign", "logabsdet"),
    holomorphic=False,
)


def _product(xp: Any, a: Any, b: Any, c: Any) -> Any:
    """Return ``a @ b @ c`` by way of the smaller matrix, so that no long side is squared."""
    if a.shape[-2] * b.shape[-1] <= b.shape[-2] * c.shape[-1]:
        return xp.matmul(xp.matmul(a, b), c)
    return xp.matmul(a, xp.matmul(b, c))


def _pinv_vjp(xp: Any, g: Any, s: Any) -> Any:
    x, p, ph, gh = s.x, s.out, adjoint(xp, s.out), adjoint(xp, g)
    rows = _product(xp, gh, p, ph)
    columns = _product(xp, ph, p, gh)
    # Either side loses what x and its pseudo-inverse reach.
    rows = rows - _product(xp, x, p, rows)
    columns = columns - _product(xp, columns, p, x)
    return rows + columns - _product(xp, ph, g, ph)


def _pinv_jvp(xp: Any, t: Any, s: Any) -> Any:
    x, p, ph, th = s.x, s.out, adjoint(xp, s.out), adjoint(xp, t)
    rows = _product(xp, p, ph, th)
    columns = _product(xp, th, ph, p)
    rows = rows - _product(xp, rows, x, p)
    columns = columns - _product(xp, p, x, columns)
    return rows + columns - _product(xp, p, t, p)


# The derivative for a constant rank; where the rank changes, the pseudo-inverse jumps.
PINV = Primitive(
    "pinv",
    forward="linalg.pinv",
    saves=("x out",),
    vjp=(_pinv_vjp,),
    jvp=(_pinv_jvp,),
    options=("rtol",),
    holomorphic=False,
)

MATRIX_RANK = Primitive(
    "matrix_rank", forward="linalg.matrix_rank", vjp=NOT_DIFFERENTIABLE, options=("rtol",)
)


def _expm_derivative(xp: Any, x: Any, v: Any) -> Any:
    """Return the derivative of the exponential at x towards v: a corner of a larger matrix."""
    zeros = xp.zeros_like(x)
    upper, lower = xp.concat([x, v], axis=-1), xp.concat([zeros, x], axis=-1)
    n = x.shape[-1]
    return xp.expm(xp.concat([upper, lower], axis=-2))[..., :n, n:]


# Beyond the standard.
EXPM = Primitive(
    "expm",
    saves=("x",),
    vjp=(lambda xp, g, s: _expm_derivative(xp, s.x.mT, g),),
    jvp=(lambda xp, t, s: _expm_derivative(xp, s.x, t),),
)
