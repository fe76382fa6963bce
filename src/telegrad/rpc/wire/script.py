"""The script that this process runs, and its names that other workers running it know, too.

A function or class of `__main__` can't be imported, so it is sent by value, with a copy of the
globals that it uses: its changes to them are lost. Where every worker of a cluster runs the same
script, each has the function itself, and it is sent by name, as PyTorch's programs expect: its
globals are then those of the worker that runs it.

Invariant: only what the script had defined before the worker joined is sent by name, since only
that is certain to exist on the others when a call comes. Later definitions are sent by value.
"""

import hashlib
import sys
from types import FunctionType
from typing import Any, Final, TypeAlias

import cloudpickle

Names: TypeAlias = dict[str, Any]
"""The script's functions and classes that other workers know, by name."""

NO_NAMES: Final[Names] = {}

_MAIN: Final = "__main__"
_DIGEST_BYTES: Final = 16


def digest_of_script() -> str:
    """Return a digest of this process's script; "" if it has no file."""
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
    """Say whether a function or class had its name in the script then, and has it now."""
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
    """Return "__main__:qualname" if the function is sent by name, else None."""
    return f"{_MAIN}:{function.__qualname__}" if is_named(function, names) else None
