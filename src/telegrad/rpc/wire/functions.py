"""How a function is sent to another worker.

A function that can be imported is sent by name (function_names.py), and so is one of the script if
every worker runs that script (script.py). Any other (a lambda, a closure, a notebook's, one of
another `__main__`) is sent by value: its code once to each peer, its digest afterwards. A function
that captured an array, a tensor or a reference has no lasting digest: it is sent with the arguments
of each call, in which the interceptor sees the captured values.

Invariant: a digest stands for the bytes that were hashed; a function whose captured values changed
has other bytes, hence another digest.
"""

import hashlib
import inspect
import weakref
from collections.abc import Callable
from typing import Any, Final, TypeVar

from telegrad.errors import Refused, UsageError
from telegrad.rpc.wire import pickler
from telegrad.rpc.wire.captures import Capture, capture, is_same
from telegrad.rpc.wire.function_names import goes_by_value_on_request
from telegrad.rpc.wire.script import NO_NAMES, Names

_F = TypeVar("_F", bound=Callable[..., Any])
_DIGEST_BYTES: Final = 16
_exposed: dict[str, Callable[..., Any]] = {}


# The bytes of functions sent by value before, with the parts that they were made of.
_codes: "weakref.WeakKeyDictionary[Any, tuple[Capture, tuple[bytes, bytes]]]" = (
    weakref.WeakKeyDictionary()
)


def code_of(function: Any, script: Names = NO_NAMES) -> tuple[bytes, bytes] | None:
    """Return (digest, code) of a function that is sent by value, or None if it holds slots.

    `script` has the script's names that it may refer to.
    """
    if not callable(function):
        raise UsageError(
            f"expected a function to run on the other worker, got {type(function).__qualname__}: "
            "give the function itself and its arguments apart, func, args=(x,), not func(x)"
        )
    made_of = None if goes_by_value_on_request() else capture(function)
    if made_of is not None:
        made_of.append(script)
        known = _codes.get(function)
        if known is not None and is_same(known[0], made_of):
            return known[1]
    code, slots = pickler.dumps(function, "func", script)
    if slots:
        return None
    pair = hashlib.blake2b(code, digest_size=_DIGEST_BYTES).digest(), code
    if made_of is not None:
        _codes[function] = (made_of, pair)
    return pair


def expose(function: _F) -> _F:
    """Allow peers to call the function by name even in strict mode.

    Examples:
        >>> @rpc.expose
        ... def double(x):
        ...     return 2 * x
        >>> double(4)
        8
    """
    _exposed[f"{function.__module__}:{function.__qualname__}"] = function
    return function


def exposing_modules() -> list[str]:
    """Return the modules whose functions are exposed so far, for other processes to import."""
    modules = {function.__module__ for function in _exposed.values()}
    return sorted(modules - {"__main__"})


def resolve_exposed(name: str) -> Callable[..., Any]:
    """Return the exposed function of that name; never import a module on a peer's word."""
    try:
        return _exposed[name]
    except KeyError:
        raise Refused(
            f"{name!r} is not served in strict mode: mark the function with @rpc.expose, and "
            "import its module on this worker, or before the LocalCluster starts"
        ) from None


def check_exposed_method(value: Any, name: str) -> None:
    """Raise Refused unless the value's class defines a method of that name that was exposed.

    Any other is dangerous: from a number's `__reduce_ex__` it is five steps to `eval`.
    """
    # A static look-up: a normal one would run properties.
    method = inspect.getattr_static(type(value), name, None)
    place = f"{getattr(method, '__module__', '')}:{getattr(method, '__qualname__', '')}"
    if method is None or _exposed.get(place) is not method:
        raise Refused(
            f"the method {name!r} of {type(value).__qualname__} is not served in strict mode: mark "
            "it with @rpc.expose, or call an exposed function with the reference"
        )
