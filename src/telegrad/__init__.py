"""telegrad: automatic differentiation that crosses process and machine boundaries."""

from telegrad import autograd, ops
from telegrad._version import __version__
from telegrad.ops import *  # noqa: F403
from telegrad.ops import lending as _lending
from telegrad.tensors import Tensor
from telegrad.tensors.modes import enable_grad, inference_mode, no_grad, set_grad_enabled
