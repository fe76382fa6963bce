"""Eigenvalues of Hermitian matrices, singular values, and their vectors.

The formulas, and what is undefined in them, are PyTorch's:

- The argument of ``eigh`` is taken to be Hermitian: its gradient is Hermitian and a tangent counts
  by its Hermitian part, though the function reads only one triangle.
- The vectors of equal values are not determined: a gradient through them is infinite or NaN; one
  through the values alone is exact.
- Complex vectors are determined up to a phase. A function that depends on it has no derivative, and
  its backward pass raises.
"""

from typing import Any, NoReturn

from telegrad.errors import GradientError, NotDifferentiable
from telegrad.rules.hermitian import (
    adjoint,
    diagonal_part,
    hermitian_part,
    identity_like,
    imag,
    is_complex,
    skew_part,
)
from telegrad.rules.primitive import Primitive

_PHASE_TOLERANCE = 1e-2
"""PyTorch's; to it is added what rounding may leave of large cotangents."""


def _apart(xp: Any, values: Any) -> Any:
    """Return at (i, j) the j-th value less the i-th, and 1 on the diagonal, to divide by."""
    apart = xp.expand_dims(values, axis=-2) - xp.expand_dims(values, axis=-1)
    return apart + identity_like(xp, apart)


def _refuse_phase(xp: Any, what: str, *turnings: Any) -> None:
    """Raise where vectors that turn together by a phase would change the result."""
    rounding = float(xp.finfo(xp.dtype_of(turnings[0])).eps) ** 0.5
    phase = sum(imag(xp, xp.linalg.diagonal(each)) for each in turnings)
    allowed = sum(xp.sum(xp.abs(each), axis=-2) for each in turnings) * rounding
    if bool(xp.any(xp.abs(phase) > allowed + _PHASE_TOLERANCE)):
        raise GradientError(
            f"expected a function that does not depend on the phase of complex {what}, got one "
            f"that does: each of the {what} may be multiplied by exp(i phi), so this derivative is "
            "not defined; differentiate something that stays the same, e.g. their absolute values"
        )


def _eigh_vjp(xp: Any, g: Any, s: Any) -> Any:
    g_values, g_vectors = g
    vectors, back = s.eigenvectors, adjoint(xp, s.eigenvectors)
    left = None if g_values is None else vectors * xp.expand_dims(g_values, axis=-2)
    if g_vectors is not None:
        inner = xp.matmul(back, g_vectors)
        if is_complex(xp, inner):
            _refuse_phase(xp, "eigenvectors", inner)
        turned = skew_part(xp, inner) * 0.5 / _apart(xp, s.eigenvalues)
        turned = xp.matmul(vectors, turned)
        left = turned if left is None else left + turned
    return xp.matmul(left, back)


def _eigh_jvp(xp: Any, t: Any, s: Any) -> Any:
    vectors, back = s.eigenvectors, adjoint(xp, s.eigenvectors)
    inner = xp.matmul(back, xp.matmul(hermitian_part(xp, t), vectors))
    turned = inner - diagonal_part(xp, inner)
    turned = turned / _apart(xp, s.eigenvalues)
    return xp.real(xp.linalg.diagonal(inner)), xp.matmul(vectors, turned)


EIGH = Primitive(
    "eigh",
    forward="linalg.eigh",
    saves=("eigenvalues eigenvectors",),
    vjp=(_eigh_vjp,),
    jvp=(_eigh_jvp,),
    outputs=("eigenvalues", "eigenvectors"),
    holomorphic=False,
    gaps=True,
)


def _eigvalsh_vjp(xp: Any, g: Any, s: Any) -> Any:
    vectors = xp.linalg.eigh(s.x)[1]
    return xp.matmul(vectors * xp.expand_dims(g, axis=-2), adjoint(xp, vectors))


def _eigvalsh_jvp(xp: Any, t: Any, s: Any) -> Any:
    vectors = xp.linalg.eigh(s.x)[1]
    return xp.real(xp.sum(xp.conj(vectors) * xp.matmul(hermitian_part(xp, t), vectors), axis=-2))


# The vectors are computed only for a derivative.
EIGVALSH = Primitive(
    "eigvalsh",
    forward="linalg.eigvalsh",
    saves=("x",),
    vjp=(_eigvalsh_vjp,),
    jvp=(_eigvalsh_jvp,),
    holomorphic=False,
)


def _squares_apart(xp: Any, values: Any) -> Any:
    """Return at (i, j) the j-th value squared less the i-th; 1 on the diagonal, to divide by."""
    across, down = xp.expand_dims(values, axis=-2), xp.expand_dims(values, axis=-1)
    apart = (across - down) * (across + down)
    return apart + identity_like(xp, apart)


def _svd_vjp(xp: Any, g: Any, s: Any) -> Any:
    g_u, g_values, g_vh = g
    u, vh = s.U, s.Vh
    parts = []
    if g_values is not None:
        parts.append(xp.matmul(u * xp.expand_dims(g_values, axis=-2), vh))
    across, down = xp.expand_dims(s.S, axis=-2), xp.expand_dims(s.S, axis=-1)
    turning_u = turning_v = inner = None
    if g_u is not None:
        turning_u = xp.matmul(adjoint(xp, u), g_u)
        inner = _off_diagonal(xp, skew_part(xp, turning_u)) / _squares_apart(xp, s.S) * across
        if u.shape[-2] > u.shape[-1]:
            parts.append(xp.matmul((g_u - xp.matmul(u, turning_u)) / across, vh))
    if g_vh is not None:
        turning_v = xp.matmul(vh, adjoint(xp, g_vh))
        right = _off_diagonal(xp, skew_part(xp, turning_v)) / _squares_apart(xp, s.S) * down
        inner = right if inner is None else inner + right
        if vh.shape[-1] > vh.shape[-2]:
            beyond = (g_vh - xp.matmul(adjoint(xp, turning_v), vh)) / down
            parts.append(xp.matmul(u, beyond))
    if inner is not None:
        if is_complex(xp, u):
            inner = inner + _phases(xp, turning_u, turning_v, s.S)
        parts.append(xp.matmul(u, xp.matmul(inner, vh)))
    return sum(parts[1:], parts[0])


def _off_diagonal(xp: Any, x: Any) -> Any:
    return x - diagonal_part(xp, x)


def _phases(xp: Any, turning_u: Any, turning_v: Any, values: Any) -> Any:
    """Return what complex pairs of vectors contribute by turning against each other.

    Turning together they give the same matrix, so what depends on that is refused.
    """
    turnings = [each for each in (turning_u, turning_v) if each is not None]
    _refuse_phase(xp, "singular vectors", *turnings)
    left, right = (
        0.0 if turning is None else diagonal_part(xp, imag(xp, turning))
        for turning in (turning_u, turning_v)
    )
    return (left - right) * 0.5 / xp.expand_dims(values, axis=-1)


def _svd_jvp(xp: Any, t: Any, s: Any) -> Any:
    u, vh = s.U, s.Vh
    across, down = xp.expand_dims(s.S, axis=-2), xp.expand_dims(s.S, axis=-1)
    left = xp.matmul(adjoint(xp, u), t)
    right = xp.matmul(t, adjoint(xp, vh))
    inner = xp.matmul(left, adjoint(xp, vh))
    back = adjoint(xp, inner)
    apart = _squares_apart(xp, s.S)
    turned_u = _off_diagonal(xp, inner * across + down * back) / apart
    turned_v = _off_diagonal(xp, down * inner + back * across) / apart
    if is_complex(xp, u):
        phases = diagonal_part(xp, imag(xp, inner)) * 0.5 / down
        turned_u, turned_v = turned_u + phases, turned_v - phases
    moved_u = xp.matmul(u, turned_u)
    if u.shape[-2] > u.shape[-1]:
        moved_u = moved_u + (right - xp.matmul(u, inner)) / across
    moved_vh = -xp.matmul(turned_v, vh)
    if vh.shape[-1] > vh.shape[-2]:
        moved_vh = moved_vh + (left - xp.matmul(inner, vh)) / down
    return moved_u, xp.real(xp.linalg.diagonal(inner)), moved_vh


SVD = Primitive(
    "svd",
    forward=lambda xp, x: xp.linalg.svd(x, full_matrices=False),
    saves=("U S Vh",),
    vjp=(_svd_vjp,),
    jvp=(_svd_jvp,),
    outputs=("U", "S", "Vh"),
    holomorphic=False,
    gaps=True,
)


def _svdvals_vjp(xp: Any, g: Any, s: Any) -> Any:
    u, _, vh = xp.linalg.svd(s.x, full_matrices=False)
    return xp.matmul(u * xp.expand_dims(g, axis=-2), vh)


def _svdvals_jvp(xp: Any, t: Any, s: Any) -> Any:
    u, _, vh = xp.linalg.svd(s.x, full_matrices=False)
    return xp.real(xp.sum(xp.conj(u) * xp.matmul(t, adjoint(xp, vh)), axis=-2))


# The vectors are computed only for a derivative.
SVDVALS = Primitive(
    "svdvals",
    forward="linalg.svdvals",
    saves=("x",),
    vjp=(_svdvals_vjp,),
    jvp=(_svdvals_jvp,),
    holomorphic=False,
)


def _svd_full_vjp(xp: Any, g: Any, s: Any) -> Any:
    g_u, g_values, g_vh = g
    if g_u is not None or g_vh is not None:
        _refuse_full(s)
    return _svdvals_vjp(xp, g_values, s)


def _refuse_full(s: Any) -> NoReturn:
    raise NotDifferentiable(
        "the singular vectors of svd(full_matrices=True) of a matrix that is not square, but "
        f"{s.U.shape[-2]} by {s.Vh.shape[-1]}, have no derivative, since the additional ones are "
        "not determined; use full_matrices=False, or svdvals for the values alone"
    )


# Of a matrix that is not square, with further vectors that belong to no value.
SVD_FULL = Primitive(
    "svd_full",
    forward=lambda xp, x: xp.linalg.svd(x, full_matrices=True),
    saves=("x U S Vh",),
    vjp=(_svd_full_vjp,),
    jvp=(lambda xp, t, s: _refuse_full(s),),
    outputs=("U", "S", "Vh"),
    holomorphic=False,
    gaps=True,
)
