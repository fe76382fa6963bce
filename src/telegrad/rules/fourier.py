"""Fourier transforms.

The transform over several axes is a primitive; that of a single axis is the same with one. Every
option is written out: ``s`` are the lengths that the axes are cut or padded with zeros to (in
``irfftn``, the lengths of the result), ``axes`` count from 0.

The matrix of a transform is symmetric, so its plain transpose is itself. Transforms between real
values and half a spectrum are linear over the real numbers only and write their adjoints: the other
direction with ``norm`` exchanged, which takes its scale away, and a weight for the frequencies that
stand for two.
"""

from typing import Any

from telegrad.rules.primitive import LINEAR, Primitive, Rule

EXCHANGED = {"backward": "forward", "ortho": "ortho", "forward": "backward"}
"""The norm of the other direction that takes a transform's scale away."""


def _resized(xp: Any, x: Any, shape: tuple[int, ...]) -> Any:
    """Return `x` cut or padded with zeros at the end of its axes."""
    if tuple(x.shape) == shape:
        return x
    index = tuple(slice(0, min(a, b)) for a, b in zip(x.shape, shape))
    x = xp.getitem(x, index=index)
    if tuple(x.shape) == shape:
        return x
    return xp.index_set(xp.zeros(shape, dtype=xp.dtype_of(x)), x, index=index)


def _transform(name: str, vjp: Rule, *, holomorphic: bool) -> Primitive:
    return Primitive(
        name,
        forward=f"fft.{name}",
        saves=("x.shape",),
        vjp=(vjp,),
        jvp=(LINEAR,),
        options=("s", "axes", "norm"),
        holomorphic=holomorphic,
    )


def _symmetric(name: str) -> Primitive:
    def vjp(xp: Any, g: Any, s: Any) -> Any:
        return _resized(xp, getattr(xp.fft, name)(g, axes=s.axes, norm=s.norm), s.x_shape)

    return _transform(name, vjp, holomorphic=True)


FFTN, IFFTN = _symmetric("fftn"), _symmetric("ifftn")


def _weights(xp: Any, length: int, middle: float, x: Any, axis: int) -> Any:
    """1 for the frequencies that half a spectrum of `length` has once, `middle` for the others."""
    half = length // 2 + 1
    once = [k == 0 or 2 * k == length for k in range(half)]
    dtype = xp.dtype_of(xp.real(x))
    values = xp.asarray([1.0 if only else middle for only in once], dtype=dtype)
    return xp.reshape(values, tuple(half if a == axis else 1 for a in range(len(x.shape))))


def _rfftn_vjp(xp: Any, g: Any, s: Any) -> Any:
    weighted = g * _weights(xp, s.s[-1], 0.5, g, s.axes[-1])
    back = xp.fft.irfftn(weighted, s=s.s, axes=s.axes, norm=EXCHANGED[s.norm])
    return _resized(xp, back, s.x_shape)


def _irfftn_vjp(xp: Any, g: Any, s: Any) -> Any:
    spectrum = xp.fft.rfftn(g, axes=s.axes, norm=EXCHANGED[s.norm])
    weighted = spectrum * _weights(xp, s.s[-1], 2.0, spectrum, s.axes[-1])
    return _resized(xp, weighted, s.x_shape)


RFFTN = _transform("rfftn", _rfftn_vjp, holomorphic=False)
IRFFTN = _transform("irfftn", _irfftn_vjp, holomorphic=False)


def _shift(name: str, vjp: Rule) -> Primitive:
    return Primitive(
        name, forward=f"fft.{name}", vjp=(vjp,), jvp=(LINEAR,), options=("axes",), exact=True
    )


FFTSHIFT = _shift("fftshift", lambda xp, g, s: xp.fft.ifftshift(g, axes=s.axes))
IFFTSHIFT = _shift("ifftshift", lambda xp, g, s: xp.fft.fftshift(g, axes=s.axes))
