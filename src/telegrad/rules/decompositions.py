"""A matrix as a product with triangular factors: Cholesky and QR.

The argument of ``cholesky`` is taken to be Hermitian, as in PyTorch: its gradient is Hermitian and
a tangent counts by its Hermitian part, though the function reads only one triangle.
"""

from typing import Any

from telegrad.errors import NotDifferentiable
from telegrad.rules.hermitian import adjoint, diagonal_part, hermitian_part, lower_half
from telegrad.rules.primitive import Primitive


def _cholesky_vjp(xp: Any, g: Any, s: Any) -> Any:
    lower, g = (adjoint(xp, s.out), adjoint(xp, g)) if s.upper else (s.out, g)
    middle = lower_half(xp, xp.matmul(adjoint(xp, lower), g))
    back = adjoint(xp, lower)
    left = xp.solve_triangular(back, middle, upper=True)
    both = xp.solve_triangular(back, adjoint(xp, left), upper=True)
    return hermitian_part(xp, both)


def _cholesky_jvp(xp: Any, t: Any, s: Any) -> Any:
    lower = adjoint(xp, s.out) if s.upper else s.out
    left = xp.solve_triangular(lower, hermitian_part(xp, t), upper=False)
    both = xp.solve_triangular(lower, adjoint(xp, left), upper=False)
    moved = xp.matmul(lower, lower_half(xp, both))
    return adjoint(xp, moved) if s.upper else moved


CHOLESKY = Primitive(
    "cholesky",
    forward="linalg.cholesky",
    saves=("out",),
    vjp=(_cholesky_vjp,),
    jvp=(_cholesky_jvp,),
    options=("upper",),
    holomorphic=False,
)


def _split(x: Any) -> tuple[Any, Any]:
    """Return the square on the left, and the columns that a wide matrix has beyond it."""
    rows = x.shape[-2]
    return x[..., :, :rows], x[..., :, rows:]


def _upper_half(xp: Any, x: Any) -> Any:
    return adjoint(xp, lower_half(xp, adjoint(xp, x)))


def _check_qr(s: Any) -> None:
    if s.Q.shape[-1] > s.R.shape[-1]:
        raise NotDifferentiable(
            f"qr(mode='complete') of a matrix with more rows ({s.Q.shape[-2]}) than columns "
            f"({s.R.shape[-1]}) has no derivative, since the last columns of Q are not determined; "
            "use mode='reduced'"
        )


def _qr_vjp(xp: Any, g: Any, s: Any) -> Any:
    _check_qr(s)
    g_q, g_r = g
    q, r = s.Q, s.R
    if r.shape[-1] <= r.shape[-2]:
        return _tall_qr_vjp(xp, g_q, g_r, q, r)
    # x = (square | rest), and R's part beyond the square is Q^H rest with rest = Q r_rest.
    r_square, r_rest = _split(r)
    g_square, g_rest = _split(g_r)
    g_q = g_q + xp.matmul(q, xp.matmul(r_rest, adjoint(xp, g_rest)))
    left = _tall_qr_vjp(xp, g_q, g_square, q, r_square)
    return xp.concat([left, xp.matmul(q, g_rest)], axis=-1)


def _tall_qr_vjp(xp: Any, g_q: Any, g_r: Any, q: Any, r: Any) -> Any:
    inner = xp.triu(xp.matmul(g_r, adjoint(xp, r)) - xp.matmul(adjoint(xp, q), g_q))
    folded = inner + adjoint(xp, inner)
    folded = folded - diagonal_part(xp, folded) * 0.5
    both = g_q + xp.matmul(q, folded)
    # both R^-H
    return adjoint(xp, xp.solve_triangular(r, adjoint(xp, both), upper=True))


def _qr_jvp(xp: Any, t: Any, s: Any) -> Any:
    _check_qr(s)
    q, r = s.Q, s.R
    if r.shape[-1] <= r.shape[-2]:
        return _tall_qr_jvp(xp, t, q, r)
    r_square, r_rest = _split(r)
    t_square, t_rest = _split(t)
    moved_q, moved_r = _tall_qr_jvp(xp, t_square, q, r_square)
    rest = xp.matmul(q, r_rest)
    moved_rest = xp.matmul(adjoint(xp, moved_q), rest) + xp.matmul(adjoint(xp, q), t_rest)
    return moved_q, xp.concat([moved_r, moved_rest], axis=-1)


def _tall_qr_jvp(xp: Any, t: Any, q: Any, r: Any) -> Any:
    scaled = xp.solve_triangular(r.mT, t.mT, upper=False).mT
    inner = xp.matmul(adjoint(xp, q), scaled)
    upper = _upper_half(xp, inner + adjoint(xp, inner))
    return scaled - xp.matmul(q, upper), xp.matmul(upper, r)


QR = Primitive(
    "qr",
    forward="linalg.qr",
    saves=("Q R",),
    vjp=(_qr_vjp,),
    jvp=(_qr_jvp,),
    outputs=("Q", "R"),
    options=("mode",),
    holomorphic=False,
)
