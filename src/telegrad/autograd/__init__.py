"""Automatic differentiation: backward passes, forward mode, and derivatives that users write."""

import typing as _typing

from telegrad.autograd import forward_ad, functional, graph
from telegrad.autograd.anomaly import detect_anomaly, set_detect_anomaly
from telegrad.autograd.backward import backward, grad
from telegrad.autograd.function import Function, once_differentiable
from telegrad.autograd.recomputation import checkpoint
from telegrad.autograd.solvers import from_adjoint, from_fixed_point, from_linear_solve
from telegrad.tensors.recording.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from telegrad.tensors.torch_hints import advice_on_names as _advice_on_names
from telegrad.tensors.torch_names import AUTOGRAD as _AUTOGRAD

__all__ = [
    "Function",
    "backward",
    "checkpoint",
    "detect_anomaly",
    "enable_grad",
    "forward_ad",
    "from_adjoint",
    "from_fixed_point",
    "from_linear_solve",
    "functional",
    "grad",
    "graph",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "once_differentiable",
    "set_detect_anomaly",
    "set_grad_enabled",
]

if not _typing.TYPE_CHECKING:  # or a type checker would take every name for known
    __getattr__ = _advice_on_names(__name__, _AUTOGRAD)
