"""Names of functions: "module:qualified.name" for importable functions, and back.

Looking up a name costs as much as sending it, so places are remembered; but a module may be
replaced and a name bound anew, so each use of a place checks what is there now.
Invariant: a name is given only to the very object that importing it would give.
"""

import importlib
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

import cloudpickle
import msgspec

from telegrad.errors import UsageError


class _Place(msgspec.Struct, frozen=True, gc=False):
    """Where a function at the top of a module was found; checked again at each use."""

    name: str
    module_name: str
    module: ModuleType
    namespace: dict[str, Any]
    attribute: str


# The most names that are remembered, by function and by name each.
_MOST_PLACES: Final = 4096
_places: dict[Any, _Place] = {}
_places_by_name: dict[str, _Place] = {}
_PLAIN: Final = frozenset((FunctionType, BuiltinFunctionType))
_listed_by_value: Final = cloudpickle.list_registry_pickle_by_value


def goes_by_value_on_request() -> bool:
    """Say whether the user has named modules whose functions must be sent by value."""
    return bool(_listed_by_value())


def importable_name(function: Any) -> str | None:
    """Return "module:qualname" if importing it gives this very object, else None."""
    is_plain = type(function) in _PLAIN
    place = _places.get(function) if is_plain else None
    if (
        place is not None
        and place.namespace.get(place.attribute) is function
        and sys.modules.get(place.module_name) is place.module
        and not _listed_by_value()
    ):
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
    """Remember a name, if it is of an object at the top of a module."""
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
    if place is not None and sys.modules.get(place.module_name) is place.module:
        there = place.namespace.get(place.attribute)
        if there is not None:
            return there
    module_name, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module_name)
    try:
        # Another call's thread may be importing it: `import_module` waits for that.
        spec = getattr(found, "__spec__", None)
        if found is None or getattr(spec, "_initializing", False):
            found = importlib.import_module(module_name)
        for part in qualname.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        if module_name == "__main__":
            raise UsageError(
                f"the script defines no {qualname!r} on this worker: every worker of this cluster "
                "runs the same script, so its functions go by their names; define it on all of "
                "them, before init_rpc"
            ) from error
        raise UsageError(
            f"the function {name!r} can't be imported on this worker ({error}): install its "
            "module here, or let the caller send it by value with "
            "cloudpickle.register_pickle_by_value"
        ) from error
    _remember(_places_by_name, name, name)
    return found
