"""Lends the public functions to Tensor's methods and, as a namespace, to rules that run on Tensors."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from telegrad import ops
from telegrad.tensors.lent import lent

__all__ = ["NAMESPACE"]


def _getitem(x: Any, index: Any) -> Any:
    return ops.getitem(x, index)


NAMESPACE = SimpleNamespace(
    **{name: getattr(ops, name) for name in ops.__all__},
    name="telegrad",
    is_numpy=False,
    isdtype=np.isdtype,
    finfo=np.finfo,
    dtype_of=lambda x: x.dtype,
    inf=float("inf"),
    nan=float("nan"),
    pi=np.pi,
    newaxis=None,
)

lent.namespace = NAMESPACE
