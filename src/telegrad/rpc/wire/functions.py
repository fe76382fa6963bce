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
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final, TypeVar

import cloudpickle
import msgspec

from telegrad.errors import Refused, UsageError
from telegrad.rpc.wire import pickling

__all__ = ["code_of", "expose", "importable_name", "resolve_exposed", "resolve_name"]

_F = TypeVar("_F", bound=Callable[..., Any])
_DIGEST_BYTES: Final = 16
_exposed: dict[str, Callable[..., Any]] = {}


class _Place(msgspec.Struct, frozen=True, gc=False):
    """Where a function at the top of a module was found; asked again before it is believed."""

    name: str
    module_name: str
    module: ModuleType
    namespace: dict[str, Any]
    attribute: str

    def holds(self) -> Any:
        """Return what is there now; None if the module was replaced."""
        if sys.modules.get(self.module_name) is self.module:
            return self.namespace.get(self.attribute)
        return None


# Names that were looked up before, by function and by name.
_MOST_PLACES: Final = 4096
_places: dict[Any, _Place] = {}
_places_by_name: dict[str, _Place] = {}
_listed_by_value: Final = cloudpickle.list_registry_pickle_by_value


def importable_name(function: Any) -> str | None:
    """Return "module:qualname" if importing it gives this very object, else None."""
    type_ = type(function)
    is_plain = type_ is FunctionType or type_ is BuiltinFunctionType
    if is_plain:
        place = _places.get(function)
        if place is not None and place.holds() is function and not _listed_by_value():
            return place.name
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if module is None or name is None or module == "__main__":
        return None
    found: Any = sys.modules.get(module)
    if found is None or module in _listed_by_value():
        return None
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not function:
        return None
    if is_plain:
        _remember(_places, function, f"{module}:{name}")
    return f"{module}:{name}"


def _remember(places: dict[Any, _Place], key: Any, name: str) -> None:
    """Enter a name, if it is that of something at the top of a module."""
    module_name, _, attribute = name.partition(":")
    module = sys.modules[module_name]
    namespace = getattr(module, "__dict__", None)
    if isinstance(namespace, dict) and attribute in namespace:
        if len(places) >= _MOST_PLACES:
            places.clear()
        places[key] = _Place(name, module_name, module, namespace, attribute)


def resolve_name(name: str) -> Any:
    """Return the object that the name stands for, importing its module if need be."""
    place = _places_by_name.get(name)
    if place is not None and (there := place.holds()) is not None:
        return there
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
    _remember(_places_by_name, name, name)
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
