"""The parts of a function that is sent by value, where they can be compared by identity.

Pickling such a function costs more than the call, so its bytes are kept. They may be used again
only if pickling would give the same bytes: the function's code, defaults, captured variables and
the globals that its code names must all be unchanged, inside and out. So each must be a number,
text, a module, or a function or class that is importable or again such a function. A function that
holds anything else (a list, an object, an array) is pickled each time.

Invariant: two equal captures of a function mean equal bytes; in doubt there is no capture.
"""

import sys
import weakref
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from telegrad.rpc.wire.function_names import importable_name

Capture = list[Any]
"""The parts in a fixed order; functions by weak references, to keep none alive."""

_CONSTANT: Final = frozenset((type(None), bool, int, float, complex, str, bytes))
# Floats are not among them: 0.0 equals -0.0.
_EQUAL_MEANS_SAME: Final = frozenset((int, str, bytes))
_MOST_PARTS: Final = 200
_names_of: "weakref.WeakKeyDictionary[FunctionType, tuple[CodeType, tuple[str, ...]]]" = (
    weakref.WeakKeyDictionary()
)


class _Changeable(Exception):
    """A part was found that may change unseen."""


def capture(function: Any) -> Capture | None:
    """Return the function's parts, or None if one of them may change unseen."""
    if type(function) is not FunctionType:
        return None
    parts: Capture = []
    try:
        _add_function(function, parts, set())
    except _Changeable:
        return None
    return parts


def is_same(before: Capture, now: Capture) -> bool:
    """Say whether two captures have the same parts."""
    if len(before) != len(now):
        return False
    for old, new in zip(before, now):
        if old is new:
            continue
        type_ = type(old)
        if type_ is not type(new):
            return False
        if type_ is weakref.ref:
            if old() is None or old() is not new():
                return False
        elif type_ not in _EQUAL_MEANS_SAME or old != new:
            return False
    return True


def _add_function(function: FunctionType, parts: Capture, seen: set[int]) -> None:
    if id(function) in seen:
        return
    seen.add(id(function))
    parts += (weakref.ref(function), function.__code__, function.__name__, function.__doc__)
    parts += (function.__qualname__, function.__module__)
    for value in function.__defaults__ or ():
        _add(value, parts, seen)
    for table in (function.__kwdefaults__, function.__dict__, function.__annotations__):
        for name, value in (table or {}).items():
            parts.append(name)
            _add(value, parts, seen)
    for cell in function.__closure__ or ():
        try:
            held = cell.cell_contents
        except ValueError:
            # Not bound yet.
            raise _Changeable from None
        _add(held, parts, seen)
    namespace = function.__globals__
    for name in _global_names(function):
        if name in namespace:
            parts.append(name)
            _add(namespace[name], parts, seen)


def _add(value: Any, parts: Capture, seen: set[int]) -> None:
    type_ = type(value)
    if type_ in _CONSTANT:
        parts.append(value)
    elif type_ is tuple:
        parts.append(len(value))
        for item in value:
            _add(item, parts, seen)
    elif type_ is ModuleType and sys.modules.get(value.__name__) is value:
        # Its pickle depends on which of its submodules are loaded, too.
        parts += (value, len(sys.modules))
    elif isinstance(value, type) or callable(value):
        if importable_name(value) is not None:
            parts.append(value)
        elif type_ is FunctionType:
            _add_function(value, parts, seen)
        else:
            raise _Changeable
    else:
        raise _Changeable
    if len(parts) > _MOST_PARTS:
        # Comparing so many parts would cost as much as pickling.
        raise _Changeable


def _global_names(function: FunctionType) -> tuple[str, ...]:
    """Return the names that the function's code, and the code inside it, may look up."""
    known = _names_of.get(function)
    if known is not None and known[0] is function.__code__:
        return known[1]
    names: dict[str, None] = {}
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        names.update(dict.fromkeys(code.co_names))
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    found = tuple(names)
    _names_of[function] = (function.__code__, found)
    return found
