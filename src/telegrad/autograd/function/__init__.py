"""Operations that users write themselves, with their own derivatives."""

from telegrad.autograd.function.context import FunctionCtx
from telegrad.autograd.function.function import Function
from telegrad.autograd.function.once import once_differentiable

__all__ = ["Function", "FunctionCtx", "once_differentiable"]
