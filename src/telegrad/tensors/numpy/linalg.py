"""NumPy's products, decompositions and Fourier transforms: entries as in ``functions.py``."""

from collections.abc import Callable
from typing import Any

import numpy as np


def _dot(xp: Any, a: Any, b: Any) -> Any:
    left, right = xp.asarray(a), xp.asarray(b)
    if not left.ndim or not right.ndim:
        return left * right
    if right.ndim == 1:
        return xp.tensordot(left, right, axes=1)
    # NumPy's dot sums over the last axis of the first and the second-last of the second.
    return xp.tensordot(left, right, axes=((left.ndim - 1,), (right.ndim - 2,)))


def _inner(xp: Any, a: Any, b: Any, /) -> Any:
    left, right = xp.asarray(a), xp.asarray(b)
    if not left.ndim or not right.ndim:
        return left * right
    return xp.tensordot(left, right, axes=((left.ndim - 1,), (right.ndim - 1,)))


def _vdot(xp: Any, a: Any, b: Any, /) -> Any:
    return xp.vecdot(xp.reshape(xp.asarray(a), (-1,)), xp.reshape(xp.asarray(b), (-1,)))


def _outer(xp: Any, a: Any, b: Any) -> Any:
    left, right = xp.reshape(xp.asarray(a), (-1, 1)), xp.reshape(xp.asarray(b), (1, -1))
    return left * right


def _norm(xp: Any, x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    if axis is None and ord is not None and x.ndim == 2:
        axis = (0, 1)
    if isinstance(axis, tuple) and len(axis) == 2 and ord is not None:
        turned = xp.moveaxis(x, axis, (-2, -1))
        result = xp.linalg.matrix_norm(turned, ord=ord)
        return result if not keepdims else xp.reshape(result, _kept(x.shape, axis))
    return xp.linalg.vector_norm(x, axis=axis, ord=2 if ord is None else ord, keepdims=keepdims)


def _kept(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    gone = {axis % len(shape) for axis in axes}
    return tuple(1 if axis in gone else length for axis, length in enumerate(shape))


def _svd(xp: Any, a: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    return xp.linalg.svd(a, full_matrices=full_matrices) if compute_uv else xp.linalg.svdvals(a)


def _of_linalg(name: str) -> Callable[..., Any]:
    """Return a function that takes arrays alone, by position."""

    def call(xp: Any, *arrays: Any) -> Any:
        return getattr(xp.linalg, name)(*arrays)

    return call


def _diagonal(xp: Any, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    turned = xp.moveaxis(a, (axis1, axis2), (-2, -1))
    return xp.linalg.diagonal(turned, offset=offset)


def _trace(xp: Any, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return xp.sum(_diagonal(xp, a, offset, axis1, axis2), axis=-1)


def _tensordot(xp: Any, a: Any, b: Any, axes: Any = 2) -> Any:
    if not isinstance(axes, int):
        axes = tuple((each,) if isinstance(each, int) else tuple(each) for each in axes)
    return xp.tensordot(xp.asarray(a), xp.asarray(b), axes=axes)


def _transform(name: str) -> Callable[..., Any]:
    def transform(
        xp: Any, a: Any, n: int | None = None, axis: int = -1, norm: str | None = None
    ) -> Any:
        return getattr(xp.fft, name)(a, n=n, axis=axis, norm=norm or "backward")

    return transform


def _transform_of_many(name: str) -> Callable[..., Any]:
    def transform(xp: Any, a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
        return getattr(xp.fft, name)(a, s=s, axes=axes, norm=norm or "backward")

    return transform


def _shift(name: str) -> Callable[..., Any]:
    def shift(xp: Any, x: Any, axes: Any = None) -> Any:
        return getattr(xp.fft, name)(x, axes=axes)

    return shift


LINALG: dict[Any, Callable[..., Any]] = {
    np.cross: lambda xp, a, b, axis=-1: xp.linalg.cross(a, b, axis=axis),
    np.diag: lambda xp, v, k=0: xp.diag(v, offset=k),
    np.diagonal: _diagonal,
    np.dot: _dot,
    np.einsum: lambda xp, subscripts, *operands, optimize=False: xp.einsum(subscripts, *operands),
    np.inner: _inner,
    np.kron: lambda xp, a, b: xp.kron(a, b),
    np.outer: _outer,
    np.tensordot: _tensordot,
    np.trace: _trace,
    np.vdot: _vdot,
    np.linalg.cholesky: lambda xp, a, /, *, upper=False: xp.linalg.cholesky(a, upper=upper),
    np.linalg.det: _of_linalg("det"),
    np.linalg.diagonal: lambda xp, x, /, *, offset=0: xp.linalg.diagonal(x, offset=offset),
    np.linalg.eigh: _of_linalg("eigh"),
    np.linalg.eigvalsh: _of_linalg("eigvalsh"),
    np.linalg.inv: _of_linalg("inv"),
    np.linalg.matmul: _of_linalg("matmul"),
    np.linalg.matrix_power: lambda xp, a, n: xp.linalg.matrix_power(a, n),
    np.linalg.matrix_rank: _of_linalg("matrix_rank"),
    np.linalg.norm: _norm,
    np.linalg.outer: _of_linalg("outer"),
    np.linalg.pinv: lambda xp, a, rcond=None: xp.linalg.pinv(a, rtol=rcond),
    np.linalg.qr: lambda xp, a, mode="reduced": xp.linalg.qr(a, mode=mode),
    np.linalg.slogdet: _of_linalg("slogdet"),
    np.linalg.solve: _of_linalg("solve"),
    np.linalg.svd: _svd,
    np.linalg.svdvals: _of_linalg("svdvals"),
    np.linalg.trace: lambda xp, x, /, *, offset=0: xp.linalg.trace(x, offset=offset),
}

FFT: dict[Any, Callable[..., Any]] = {
    **{
        getattr(np.fft, name): _transform(name)
        for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
    },
    **{
        getattr(np.fft, name): _transform_of_many(name)
        for name in ("fftn", "ifftn", "rfftn", "irfftn")
    },
    np.fft.fftshift: _shift("fftshift"),
    np.fft.ifftshift: _shift("ifftshift"),
}
