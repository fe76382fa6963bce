"""PyTorch's modes belong to a thread, and a thread that waits for an answer serves others.

So what is served must not run in the modes of whoever waits: a handler, or a part of a pass, begins
as it would on a thread of its own: without inference mode, autocast, a default device or another
mode for functions, and hooks for saved tensors.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeVar

import torch

__all__ = ["is_ordinary", "is_recording", "ordinarily", "run_ordinarily"]

R = TypeVar("R")

_is_inferring = torch.is_inference_mode_enabled
_is_casting: Any = torch._C._is_any_autocast_enabled
_count_function_modes: Any = torch._C._len_torch_function_stack
_hooks: Any = torch._C._autograd
_top_hooks: Any = _hooks._top_saved_tensors_default_hooks


def is_recording() -> bool:
    """Whether this thread records, as every thread does at first."""
    return torch.is_grad_enabled() and not _is_inferring()


def is_ordinary() -> bool:
    """Whether this thread is in the modes that every thread has at first."""
    return torch.is_grad_enabled() and _is_plain()


def _is_plain() -> bool:
    """The same, but for whether it records."""
    return not (_is_inferring() or _is_casting() or _count_function_modes() or _top_hooks(True))


def _leave_modes(stack: ExitStack) -> None:
    """Takes this thread out of all modes but whether it records, until the stack is closed."""
    if _is_inferring():
        stack.enter_context(torch.inference_mode(False))
    if _is_casting():
        stack.enter_context(torch._C._DisableAutocast())
    for _ in range(_count_function_modes()):
        stack.enter_context(torch.overrides._pop_mode_temporarily())
    while (pair := _top_hooks(True)) is not None:
        _hooks._pop_saved_tensors_default_hooks()
        stack.callback(_hooks._push_saved_tensors_default_hooks, *pair)


@contextmanager
def ordinarily(inner: AbstractContextManager[Any]) -> Iterator[Any]:
    """Another context manager, in the modes that every thread has at first."""
    with ExitStack() as stack:
        _leave_modes(stack)
        stack.enter_context(torch.enable_grad())
        yield stack.enter_context(inner)


def run_ordinarily(function: Callable[[], R]) -> R:
    """The function's result, computed in no mode of this thread but whether it records."""
    if _is_plain():
        return function()
    with ExitStack() as stack:
        _leave_modes(stack)
        return function()
