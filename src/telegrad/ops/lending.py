"""Lends the public functions to Tensor's methods and, as a namespace, to rules on Tensors."""

from types import SimpleNamespace

from telegrad import ops
from telegrad.ops import constants, fft, linalg
from telegrad.tensors.lent import lent

__all__ = ["NAMESPACE"]


NAMESPACE = SimpleNamespace(
    **{name: getattr(ops, name) for name in ops.__all__},
    linalg=linalg,
    fft=fft,
    cofactor=linalg.cofactor,
    expm=linalg.expm,
    name="telegrad",
    is_numpy=False,
    dtype_of=lambda x: x.dtype,
    e=constants.e,
    inf=constants.inf,
    nan=constants.nan,
    pi=constants.pi,
    newaxis=constants.newaxis,
)

lent.namespace = NAMESPACE
