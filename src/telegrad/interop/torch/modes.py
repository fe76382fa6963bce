"""Leave PyTorch's modes, which belong to a thread, while the thread works for someone else.

A thread that waits for an answer runs handlers and local passes meanwhile. These must not run in
the waiting program's modes. They begin as on a new thread: without inference mode, autocast, a
default device, other modes for functions or operators, function transforms, and hooks for saved
tensors. A handler's work is also kept out of the waiting program's profile.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final, TypeVar

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils import _python_dispatch

from telegrad.interop.torch.profile import THREAD, resting

R = TypeVar("R")

_is_inferring = torch.is_inference_mode_enabled
_is_autocast_enabled: Any = torch._C._is_any_autocast_enabled
_enter_autocast: Any = torch.autocast_increment_nesting
_exit_autocast: Any = torch.autocast_decrement_nesting
_count_function_modes: Any = torch._C._len_torch_function_stack
_count_operator_modes: Any = torch._C._len_torch_dispatch_stack
_is_transforming: Any = torch._C._are_functorch_transforms_active
_hooks: Any = torch._C._autograd
_top_hooks: Any = _hooks._top_saved_tensors_default_hooks
_CAST_TO: Final = {"cpu": torch.bfloat16, "cuda": torch.float16}
"""PyTorch's initial autocast dtypes."""


def is_recording() -> bool:
    """Tell whether PyTorch records on this thread, as it does by default."""
    return torch.is_grad_enabled() and not _is_inferring()


def _is_plain() -> bool:
    """Tell whether this thread is in no mode, grad mode aside."""
    _enter_autocast()
    return not (
        _exit_autocast()
        or _is_autocast_enabled()
        or _is_inferring()
        or _count_function_modes()
        or _count_operator_modes()
        or _is_transforming()
        or _top_hooks(True)
    )


def _is_casting() -> bool:
    """Tell whether this thread is in an autocast block, or autocast is enabled without one."""
    # Also in a block that disables autocast, which keeps the outer blocks' casts: see below.
    _enter_autocast()
    return bool(_exit_autocast() or _is_autocast_enabled())


def _leave_autocast(stack: ExitStack) -> None:
    """Take this thread out of autocast, with its dtypes and its cache of cast parameters.

    PyTorch keeps that cache until the outermost block ends. A handler's own blocks would be inner
    ones, and would get old casts of parameters that have changed since.
    """
    stack.enter_context(torch._C._DisableAutocast())
    for device, dtype in _CAST_TO.items():
        stack.callback(torch.set_autocast_dtype, device, torch.get_autocast_dtype(device))
        torch.set_autocast_dtype(device, dtype)
    torch.clear_autocast_cache()
    _enter_autocast()
    while _exit_autocast() > 0:
        stack.callback(_enter_autocast)


def _leave_modes(stack: ExitStack) -> None:
    """Take this thread out of all modes except grad mode, until the stack is closed."""
    if _is_inferring():
        stack.enter_context(torch.inference_mode(False))
    if _is_casting():
        _leave_autocast(stack)
    for _ in range(_count_function_modes()):
        stack.enter_context(torch.overrides._pop_mode_temporarily())
    for _ in range(_count_operator_modes()):
        stack.enter_context(_python_dispatch._pop_mode_temporarily())
    if _is_transforming():
        stack.enter_context(temporarily_clear_interpreter_stack())
    while (pair := _top_hooks(True)) is not None:
        _hooks._pop_saved_tensors_default_hooks()
        stack.callback(_hooks._push_saved_tensors_default_hooks, *pair)


def default_modes(
    scope: AbstractContextManager[Any], keeps_recording: bool
) -> AbstractContextManager[Any]:
    """See ``Framework`` in ``distributed/frameworks.py``."""
    # A pass also stays in the profile of its thread; a handler must not appear in it.
    is_fresh = keeps_recording or (torch.is_grad_enabled() and THREAD.recording is None)
    return scope if is_fresh and _is_plain() else _ordinarily(scope, keeps_recording)


@contextmanager
def _ordinarily(scope: AbstractContextManager[Any], keeps_recording: bool) -> Iterator[Any]:
    with ExitStack() as stack:
        _leave_modes(stack)
        if not keeps_recording:
            stack.enter_context(resting())
            stack.enter_context(torch.enable_grad())
        yield stack.enter_context(scope)


def run_ordinarily(function: Callable[[], R]) -> R:
    """Return the function's result, computed outside of this thread's modes except grad mode."""
    if _is_plain():
        return function()
    with ExitStack() as stack:
        _leave_modes(stack)
        return function()
