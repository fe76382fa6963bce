"""Derivatives of functions, as functions: pure, and nestable to any depth.

``.grad`` is never changed. A tensor that requires grad outside stays differentiable from outside,
so ``grad(grad(f))``, ``jvp`` of ``grad`` and any other combination are correct.
"""

import typing as _typing

from telegrad.autograd.functional.forward import jvp, linearize
from telegrad.autograd.functional.matrices import hessian, jacobian
from telegrad.autograd.functional.products import hvp, vhp
from telegrad.autograd.functional.reverse import grad, value_and_grad, vjp
from telegrad.tensors.torch_hints import advice_on_names as _advice_on_names
from telegrad.tensors.torch_names import FUNCTIONAL as _FUNCTIONAL

__all__ = [
    "grad",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "linearize",
    "value_and_grad",
    "vhp",
    "vjp",
]

if not _typing.TYPE_CHECKING:  # or a type checker would take every name for known
    __getattr__ = _advice_on_names(__name__, _FUNCTIONAL)
