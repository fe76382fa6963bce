"""Parts of complex values. None is holomorphic: each primitive writes the convention itself."""

from typing import Any

from telegrad.rules.primitive import LINEAR, SAME, Primitive

CONJ = Primitive(
    "conj",
    vjp=(lambda xp, g, s: xp.conj(g),),
    jvp=(LINEAR,),
    elementwise=True,
    holomorphic=False,
)

# The edge makes the gradient complex.
REAL = Primitive("real", vjp=(SAME,), jvp=(LINEAR,), elementwise=True, holomorphic=False)


def _imag_vjp(xp: Any, g: Any, s: Any) -> Any:
    # The steepest way to raise the imaginary part is along i.
    return xp.astype(g, s.x_dtype) * 1j


IMAG = Primitive(
    "imag",
    saves=("x.dtype",),
    vjp=(_imag_vjp,),
    jvp=(LINEAR,),
    elementwise=True,
    holomorphic=False,
)
