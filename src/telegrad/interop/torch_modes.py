"""PyTorch's modes belong to a thread, and a thread that waits for an answer serves others.

So what is served must not run in the modes of whoever waits: a handler, or a part of a pass, begins
as it would on a thread of its own.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any, TypeVar

import torch

__all__ = ["Ordinarily", "is_ordinary", "run_ordinarily"]

R = TypeVar("R")


def is_ordinary() -> bool:
    """Whether this thread records, as every thread does at first."""
    return torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


class Ordinarily:
    """Another context manager, in the modes that every thread has at first."""

    __slots__ = ("_inner", "_stack")

    def __init__(self, inner: AbstractContextManager[Any]) -> None:
        self._inner = inner
        self._stack = ExitStack()

    def __enter__(self) -> Any:
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
            entered = stack.enter_context(self._inner)
            self._stack = stack.pop_all()
        return entered

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)


def run_ordinarily(function: Callable[[], R]) -> R:
    """The function's result, computed outside of inference mode: others may differentiate it."""
    if not torch.is_inference_mode_enabled():
        return function()
    with torch.inference_mode(False):
        return function()
