"""Fourier transforms: the ``fft`` extension of the array API standard."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from telegrad.errors import ShapeError, UsageError
from telegrad.ops.arguments import (
    ArrayLike,
    as_tensor,
    check_floating,
    check_real,
    normalized_axes,
)
from telegrad.ops.creation import asarray
from telegrad.ops.magnitude import conj
from telegrad.ops.windows import pad
from telegrad.rules import Primitive
from telegrad.rules import fourier as _primitives
from telegrad.tensors import Tensor, apply

__all__ = [
    "fft",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfftn",
    "rfft",
    "rfftfreq",
    "rfftn",
]

Norm: TypeAlias = Literal["backward", "ortho", "forward"]
"""What divides by the length: the inverse, both directions by its root, or the transform."""


def fft(x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Return the discrete Fourier transform along an axis.

    Arguments:
        x: The values.
        n: How many elements to cut or pad to; all by default.
        axis: The axis to go along.
        norm: Which direction divides by the length: "backward", "ortho" (both, by its root) or
            "forward".

    Raises:
        DTypeError: If x is neither floating nor complex.

    Examples:
        >>> tg.fft.fft(tg.tensor([1.0, 0.0, 0.0, 0.0]))
        tensor([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64)
    """
    return _transformed(_primitives.FFTN, "fft", x, _one(n), (axis,), norm)


def ifft(x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Return the inverse of ``fft``.

    The arguments are those of ``fft``.

    Examples:
        >>> tg.real(tg.fft.ifft(tg.tensor([4.0, 0.0, 0.0, 0.0])))
        tensor([1., 1., 1., 1.])
    """
    return _transformed(_primitives.IFFTN, "ifft", x, _one(n), (axis,), norm)


def fftn(
    x: ArrayLike,
    /,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Tensor:
    """Return the transform along several axes.

    Arguments:
        x: The values.
        s: The lengths to cut or pad to.
        axes: The axes to transform; all, or the last ones if `s` is given, by default.
        norm: As in ``fft``.

    Examples:
        >>> tg.real(tg.fft.fftn(tg.ones(2, 2)))
        tensor([[4., 0.],
                [0., 0.]])
    """
    return _transformed(_primitives.FFTN, "fftn", x, s, axes, norm)


def ifftn(
    x: ArrayLike,
    /,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Tensor:
    """Return the inverse of ``fftn``.

    The arguments are those of ``fftn``.

    Examples:
        >>> tg.real(tg.fft.ifftn(tg.ones(2, 2)))
        tensor([[1., 0.],
                [0., 0.]])
    """
    return _transformed(_primitives.IFFTN, "ifftn", x, s, axes, norm)


def rfft(x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Return the transform of real values: half of the spectrum, which determines the rest.

    The arguments are those of ``fft``.

    Raises:
        DTypeError: If x is not real.

    Examples:
        >>> tg.fft.rfft(tg.ones(4))
        tensor([4.+0.j, 0.+0.j, 0.+0.j], dtype=complex64)
    """
    return _transformed(_primitives.RFFTN, "rfft", x, _one(n), (axis,), norm)


def irfft(x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Return the inverse of ``rfft``: n real values, by default an even number of them.

    The other arguments are those of ``fft``.

    Arguments:
        n: How many values the result has.

    Examples:
        >>> tg.fft.irfft(tg.tensor([4.0, 0.0, 0.0]))
        tensor([1., 1., 1., 1.])
    """
    return _transformed(_primitives.IRFFTN, "irfft", x, _one(n), (axis,), norm)


def rfftn(
    x: ArrayLike,
    /,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Tensor:
    """Return ``rfft`` along the last of the axes, then ``fft`` along the others.

    The arguments are those of ``fftn``.

    Examples:
        >>> tg.fft.rfftn(tg.ones(2, 4)).shape
        (2, 3)
    """
    return _transformed(_primitives.RFFTN, "rfftn", x, s, axes, norm)


def irfftn(
    x: ArrayLike,
    /,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Tensor:
    """Return the inverse of ``rfftn``.

    The other arguments are those of ``fftn``.

    Arguments:
        s: The lengths of the result.

    Examples:
        >>> tg.fft.irfftn(tg.fft.rfftn(tg.ones(2, 4)))
        tensor([[1., 1., 1., 1.],
                [1., 1., 1., 1.]])
    """
    return _transformed(_primitives.IRFFTN, "irfftn", x, s, axes, norm)


def hfft(x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Return the real transform of a signal that mirrors its own conjugate, given by half of it.

    The arguments are those of ``irfft``.

    Examples:
        >>> tg.fft.hfft(tg.tensor([1.0, 0.0, 0.0]))
        tensor([1., 1., 1., 1.])
    """
    return irfft(conj(as_tensor(x, "hfft")), n=n, axis=axis, norm=_exchanged(norm, "hfft"))


def ihfft(x: ArrayLike, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """Return the inverse of ``hfft``.

    The arguments are those of ``fft``.

    Examples:
        >>> tg.real(tg.fft.ihfft(tg.ones(4)))
        tensor([1., 0., 0.])
    """
    return conj(rfft(x, n=n, axis=axis, norm=_exchanged(norm, "ihfft")))


def fftshift(x: ArrayLike, /, axes: int | Sequence[int] | None = None) -> Tensor:
    """Move the frequency 0 from the start of the axes to their middle.

    Examples:
        >>> tg.fft.fftshift(tg.fft.fftfreq(4))
        tensor([-0.5 , -0.25,  0.  ,  0.25])
    """
    return _shifted(_primitives.FFTSHIFT, x, axes)


def ifftshift(x: ArrayLike, /, axes: int | Sequence[int] | None = None) -> Tensor:
    """Move the frequency 0 from the middle of the axes back to their start.

    Examples:
        >>> tg.fft.ifftshift(tg.tensor([-2, -1, 0, 1]))
        tensor([ 0,  1, -2, -1])
    """
    return _shifted(_primitives.IFFTSHIFT, x, axes)


def _shifted(primitive: Primitive, x: ArrayLike, axes: int | Sequence[int] | None) -> Tensor:
    x = as_tensor(x, primitive.name)
    several = axes if axes is None or isinstance(axes, int) else tuple(axes)
    return apply(primitive, x, axes=normalized_axes(several, x.ndim, primitive.name))


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """Return the frequencies of ``fft`` of n values at the distance d.

    Arguments:
        n: How many values.
        d: From each value to the next.
        dtype: The dtype of the result; float32 by default.
        device: "cpu" or None, which is the same.

    Examples:
        >>> tg.fft.fftfreq(4)
        tensor([ 0.  ,  0.25, -0.5 , -0.25])
    """
    return asarray(np.fft.fftfreq(n, d), dtype=dtype or np.float32, device=device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """Return the frequencies of ``rfft`` of n values at the distance d.

    The arguments are those of ``fftfreq``.

    Examples:
        >>> tg.fft.rfftfreq(4)
        tensor([0.  , 0.25, 0.5 ])
    """
    return asarray(np.fft.rfftfreq(n, d), dtype=dtype or np.float32, device=device)


def _one(n: int | None) -> tuple[int, ...] | None:
    return None if n is None else (n,)


def _exchanged(norm: str, name: str) -> Any:
    """Return the scale of a transform in the other direction."""
    if norm not in _primitives.EXCHANGED:
        raise UsageError(
            f"expected 'backward', 'ortho' or 'forward' as norm of {name}, got {norm!r}"
        )
    return _primitives.EXCHANGED[norm]


def _transformed(
    primitive: Primitive,
    name: str,
    x: ArrayLike,
    s: Sequence[int] | None,
    axes: Sequence[int] | None,
    norm: str,
) -> Tensor:
    """Call a primitive with every option checked and written out."""
    x = as_tensor(x, name)
    (check_real if primitive is _primitives.RFFTN else check_floating)(x, name)
    _exchanged(norm, name)
    if axes is None:
        axes = tuple(range(x.ndim)) if s is None else tuple(range(-len(s), 0))
    axes = normalized_axes(tuple(axes), x.ndim, name)
    if not axes:
        raise ShapeError(f"expected at least one axis to transform in {name}, got none")
    lengths = [x.shape[a] for a in axes]
    if primitive is _primitives.IRFFTN:
        lengths[-1] = 2 * (lengths[-1] - 1)
    if s is not None:
        if len(s) != len(axes):
            raise ShapeError(f"expected a length for each of the axes {axes} in {name}, got {s}")
        lengths = list(s)
    if min(lengths) < 1:
        raise ShapeError(
            f"expected at least one element along the axes {axes} in {name}, got the lengths "
            f"{lengths}"
        )
    last = axes[-1]
    if primitive is _primitives.IRFFTN and not x.shape[last]:
        # NumPy reads the first of them, there or not.
        x = pad(x, [(0, int(a == last)) for a in range(x.ndim)])
    return apply(primitive, x, s=tuple(lengths), axes=axes, norm=norm)
