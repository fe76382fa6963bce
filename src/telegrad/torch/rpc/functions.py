"""A replacement for ``torch.distributed.rpc.functions``: functions whose result comes later."""

import functools
from collections.abc import Callable
from typing import Any

_MARK = "_wrapped_async_rpc_function"


def async_execution(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that returns a ``torch.futures.Future``; callers get the future's value."""

    @functools.wraps(fn)
    def marked(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    setattr(marked, _MARK, fn)
    return marked


def is_async(function: Any) -> bool:
    """Tell whether ``async_execution`` marked a function."""
    return hasattr(function, _MARK)
