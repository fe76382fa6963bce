"""How a function is named to another worker.

A function that can be imported goes by "module:qualified.name". Any other (of `__main__`, a
lambda, a closure, a notebook's) goes by value: its code once a peer, its digest afterwards. A
function that captured an array, a tensor or a reference has no lasting digest: it travels with
the arguments of each call, so that what it captured is seen each time.

Invariant: a digest stands for the bytes that were hashed; a function whose captured values changed
has other bytes, hence another digest.
"""

import hashlib
import importlib
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import cloudpickle

from telegrad.errors import Refused, UsageError
from telegrad.rpc.wire import pickling

__all__ = ["code_of", "expose", "importable_name", "resolve_exposed", "resolve_name"]

_F = TypeVar("_F", bound=Callable[..., Any])
_DIGEST_BYTES: Final = 16
_exposed: dict[str, Callable[..., Any]] = {}


def importable_name(function: Any) -> str | None:
    """Return "module:qualname" if importing it gives this very object, else None."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if module is None or name is None or module == "__main__":
        return None
    found: Any = sys.modules.get(module)
    if found is None or _goes_by_value(module):
        return None
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is function else None


def _goes_by_value(module: str) -> bool:
    registered = cloudpickle.list_registry_pickle_by_value()
    return bool(registered) and module in registered


def resolve_name(name: str) -> Any:
    """Return the object that the name stands for, importing its module if need be."""
    module_name, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module_name)
    try:
        # It may be there half imported, by the thread of another call: importing waits for that.
        spec = getattr(found, "__spec__", None)
        if found is None or getattr(spec, "_initializing", False):
            found = importlib.import_module(module_name)
        for part in qualname.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"the function {name!r} can't be imported on this worker ({error}): install its "
            "module here, or let the caller send it by value with "
            "cloudpickle.register_pickle_by_value"
        ) from error
    return found


def code_of(function: Any) -> tuple[bytes, bytes] | None:
    """Return (digest, code) of a function that goes by value, or None if it holds slots."""
    code, slots = pickling.dumps(function, "func")
    if slots:
        return None
    return hashlib.blake2b(code, digest_size=_DIGEST_BYTES).digest(), code


def expose(function: _F) -> _F:
    """Allow peers to call the function by name even in strict mode."""
    _exposed[f"{function.__module__}:{function.__qualname__}"] = function
    return function


def resolve_exposed(name: str) -> Callable[..., Any]:
    """Return the exposed function of that name; nothing is imported on a peer's word."""
    try:
        return _exposed[name]
    except KeyError:
        raise Refused(
            f"{name!r} is not served in strict mode: mark the function with @rpc.expose, and "
            "import its module on this worker"
        ) from None
