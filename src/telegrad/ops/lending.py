"""Lends the public functions to Tensor's methods and, as a namespace, to rules that run on Tensors."""

from types import SimpleNamespace

import numpy as np

from telegrad import ops
from telegrad.tensors.lent import lent

__all__ = ["NAMESPACE"]


NAMESPACE = SimpleNamespace(
    **{name: getattr(ops, name) for name in ops.__all__},
    name="telegrad",
    is_numpy=False,
    dtype_of=lambda x: x.dtype,
    inf=float("inf"),
    nan=float("nan"),
    pi=np.pi,
    newaxis=None,
)

lent.namespace = NAMESPACE
