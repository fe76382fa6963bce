"""NumPy's products, decompositions and Fourier transforms, over the functions of telegrad."""

from collections.abc import Callable
from typing import Any

import numpy as np

from telegrad.tensors.late_bound import late_bound


def _dot(a: Any, b: Any) -> Any:
    xp = late_bound.namespace
    left, right = xp.asarray(a), xp.asarray(b)
    if not left.ndim or not right.ndim:
        return left * right
    if right.ndim == 1:
        return xp.tensordot(left, right, axes=1)
    # NumPy's dot sums over the last axis of the first and the last but one of the second.
    return xp.tensordot(left, right, axes=((left.ndim - 1,), (right.ndim - 2,)))


def _inner(a: Any, b: Any, /) -> Any:
    xp = late_bound.namespace
    left, right = xp.asarray(a), xp.asarray(b)
    if not left.ndim or not right.ndim:
        return left * right
    return xp.tensordot(left, right, axes=((left.ndim - 1,), (right.ndim - 1,)))


def _vdot(a: Any, b: Any, /) -> Any:
    xp = late_bound.namespace
    return xp.vecdot(xp.reshape(xp.asarray(a), (-1,)), xp.reshape(xp.asarray(b), (-1,)))


def _outer(a: Any, b: Any) -> Any:
    xp = late_bound.namespace
    left, right = xp.reshape(xp.asarray(a), (-1, 1)), xp.reshape(xp.asarray(b), (1, -1))
    return left * right


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    linalg = late_bound.namespace.linalg
    if axis is None and ord is not None and x.ndim == 2:
        axis = (0, 1)
    if isinstance(axis, tuple) and len(axis) == 2 and ord is not None:
        turned = late_bound.namespace.moveaxis(x, axis, (-2, -1))
        result = linalg.matrix_norm(turned, ord=ord)
        return (
            result if not keepdims else late_bound.namespace.reshape(result, _kept(x.shape, axis))
        )
    return linalg.vector_norm(x, axis=axis, ord=2 if ord is None else ord, keepdims=keepdims)


def _kept(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    gone = {axis % len(shape) for axis in axes}
    return tuple(1 if axis in gone else length for axis, length in enumerate(shape))


def _svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    linalg = late_bound.namespace.linalg
    return linalg.svd(a, full_matrices=full_matrices) if compute_uv else linalg.svdvals(a)


def _of_linalg(name: str) -> Callable[..., Any]:
    """Return a function that takes arrays alone, by position."""

    def call(*arrays: Any) -> Any:
        return getattr(late_bound.namespace.linalg, name)(*arrays)

    return call


def _diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    turned = late_bound.namespace.moveaxis(a, (axis1, axis2), (-2, -1))
    return late_bound.namespace.linalg.diagonal(turned, offset=offset)


def _trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return late_bound.namespace.sum(_diagonal(a, offset, axis1, axis2), axis=-1)


def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    if not isinstance(axes, int):
        axes = tuple((each,) if isinstance(each, int) else tuple(each) for each in axes)
    return late_bound.namespace.tensordot(
        late_bound.namespace.asarray(a), late_bound.namespace.asarray(b), axes=axes
    )


def _transform(name: str) -> Callable[..., Any]:
    def transform(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
        return getattr(late_bound.namespace.fft, name)(a, n=n, axis=axis, norm=norm or "backward")

    return transform


def _transform_of_many(name: str) -> Callable[..., Any]:
    def transform(a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
        return getattr(late_bound.namespace.fft, name)(a, s=s, axes=axes, norm=norm or "backward")

    return transform


def _shift(name: str) -> Callable[..., Any]:
    def shift(x: Any, axes: Any = None) -> Any:
        return getattr(late_bound.namespace.fft, name)(x, axes=axes)

    return shift


LINALG: dict[Any, Callable[..., Any]] = {
    np.cross: lambda a, b, axis=-1: late_bound.namespace.linalg.cross(a, b, axis=axis),
    np.diag: lambda v, k=0: late_bound.namespace.diag(v, offset=k),
    np.diagonal: _diagonal,
    np.dot: _dot,
    np.einsum: lambda subscripts, *operands, optimize=False: late_bound.namespace.einsum(
        subscripts, *operands
    ),
    np.inner: _inner,
    np.kron: lambda a, b: late_bound.namespace.kron(a, b),
    np.outer: _outer,
    np.tensordot: _tensordot,
    np.trace: _trace,
    np.vdot: _vdot,
    np.linalg.cholesky: lambda a, /, *, upper=False: late_bound.namespace.linalg.cholesky(
        a, upper=upper
    ),
    np.linalg.det: _of_linalg("det"),
    np.linalg.diagonal: lambda x, /, *, offset=0: late_bound.namespace.linalg.diagonal(
        x, offset=offset
    ),
    np.linalg.eigh: _of_linalg("eigh"),
    np.linalg.eigvalsh: _of_linalg("eigvalsh"),
    np.linalg.inv: _of_linalg("inv"),
    np.linalg.matmul: _of_linalg("matmul"),
    np.linalg.matrix_power: lambda a, n: late_bound.namespace.linalg.matrix_power(a, n),
    np.linalg.matrix_rank: _of_linalg("matrix_rank"),
    np.linalg.norm: _norm,
    np.linalg.outer: _of_linalg("outer"),
    np.linalg.pinv: lambda a, rcond=None: late_bound.namespace.linalg.pinv(a, rtol=rcond),
    np.linalg.qr: lambda a, mode="reduced": late_bound.namespace.linalg.qr(a, mode=mode),
    np.linalg.slogdet: _of_linalg("slogdet"),
    np.linalg.solve: _of_linalg("solve"),
    np.linalg.svd: _svd,
    np.linalg.svdvals: _of_linalg("svdvals"),
    np.linalg.trace: lambda x, /, *, offset=0: late_bound.namespace.linalg.trace(x, offset=offset),
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
