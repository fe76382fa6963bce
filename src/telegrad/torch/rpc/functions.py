"""How a function says that its result comes later; see ``torch.distributed.rpc.functions``."""

import functools
from collections.abc import Callable
from typing import Any

_MARK = "_wrapped_async_rpc_function"


def async_execution(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that returns a ``torch.futures.Future``: its caller gets the value."""

    @functools.wraps(fn)
    def marked(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    setattr(marked, _MARK, fn)
    return marked


def is_async(function: Any) -> bool:
    """Tell whether a function is marked so."""
    return hasattr(function, _MARK)
