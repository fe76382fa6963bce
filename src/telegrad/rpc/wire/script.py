"""The script that this process runs, and what of it has a name on workers that run the same one.

A function or class of `__main__` can't be imported, so it goes by value, with a copy of the globals
that it uses: what it changes there is lost. Where every worker of a cluster runs the same script,
each has it itself, and it goes by its name, as PyTorch's programs expect: its globals are then
those of the worker that runs it.

Invariant: only what the script had defined before the worker joined is named, since only that is
there on the others whenever a call comes. What it defines anew later goes by value.
"""

import hashlib
import sys
from types import FunctionType
from typing import Any, Final, TypeAlias

import cloudpickle

Names: TypeAlias = dict[str, Any]
"""What of the script has a name elsewhere: the functions and classes, by their names."""

NO_NAMES: Final[Names] = {}

_MAIN: Final = "__main__"
_DIGEST_BYTES: Final = 16


def digest_of_script() -> str:
    """Return what tells this process's script from others; "" if it has no file."""
    try:
        with open(str(getattr(sys.modules[_MAIN], "__file__", "")), "rb") as file:
            return hashlib.blake2b(file.read(), digest_size=_DIGEST_BYTES).hexdigest()
    except OSError:
        return ""


def defined_names() -> Names:
    """Return the functions and classes that the script has defined so far."""
    return {
        name: value
        for name, value in vars(sys.modules[_MAIN]).copy().items()
        if isinstance(value, (FunctionType, type)) and value.__module__ == _MAIN
    }


def is_named(value: Any, names: Names) -> bool:
    """Say whether a function or class is what its name means in the script, then and now."""
    if getattr(value, "__module__", None) != _MAIN:
        return False
    first, *path = str(getattr(value, "__qualname__", "")).split(".")
    found = getattr(sys.modules[_MAIN], first, None)
    if found is None or found is not names.get(first):
        return False
    for part in path:
        found = getattr(found, part, None)
    return found is value and _MAIN not in cloudpickle.list_registry_pickle_by_value()


def script_name(function: Any, names: Names) -> str | None:
    """Return "__main__:qualname" if the function goes by its name, else None."""
    return f"{_MAIN}:{function.__qualname__}" if is_named(function, names) else None
