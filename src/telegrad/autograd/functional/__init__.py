"""Derivatives of functions, as functions: pure, and nested to any depth.

``.grad`` is never touched. A tensor that requires grad outside stays differentiable from outside,
so ``grad(grad(f))``, ``jvp`` of ``grad`` and any other mixture mean what they say.
"""

from telegrad.autograd.functional.forward import jvp, linearize
from telegrad.autograd.functional.matrices import hessian, jacobian
from telegrad.autograd.functional.products import hvp, vhp
from telegrad.autograd.functional.reverse import grad, value_and_grad, vjp

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
