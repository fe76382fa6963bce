"""Lends the public functions to Tensor's methods and, as a namespace, to rules on Tensors."""

from types import SimpleNamespace

from telegrad import ops
from telegrad.ops import constants, convolution, fft, linalg, pooling, selection
from telegrad.tensors.lent import lent

__all__ = ["NAMESPACE"]


NAMESPACE = SimpleNamespace(
    **{name: getattr(ops, name) for name in ops.__all__},
    linalg=linalg,
    fft=fft,
    cofactor=linalg.cofactor,
    expm=linalg.expm,
    matrix_product=ops.matmul,
    solve_triangular=linalg.solve_triangular,
    convolve=convolution.convolve,
    convolve_input=convolution.convolve_input,
    convolve_weight=convolution.convolve_weight,
    pool_put=pooling.pool_put,
    pool_spread=pooling.pool_spread,
    pool_sum=pooling.pool_sum,
    pool_take=pooling.pool_take,
    where_nonzero=selection.where_nonzero,
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
