"""Errors for names and options of PyTorch or NumPy that telegrad lacks: they say what to write.

The tables, from a familiar name to telegrad's way, are in ``torch_names`` and beside the classes
and modules that lack the names. They are read only once something has failed: for a class, each
name is a descriptor that raises, not a `__getattr__`, which would slow down every attribute of
every tensor (CPython 3.11 does not specialise those).

Invariant: nothing here makes a name work. `hasattr` says False for each of them, and `dir` does not
list them.
"""

from collections.abc import Callable, Iterable, Mapping
from inspect import getattr_static
from typing import NoReturn, TypeVar

_Class = TypeVar("_Class", bound=type)

_OPTIONS: dict[str, str] = {
    "dim": "use axis=",
    "dims": "use axis=",
    "keepdim": "use keepdims=",
    "diagonal": "use k=",
    "p": "use ord=",
    "unbiased": "use correction=1 for unbiased=True, correction=0 for False",
    "ddof": "use correction=",
    "requires_grad": "call .requires_grad_() of the result",
    "device": "write .to(device) of the result",
    "inplace": "values do not alias, leave it out",
    "out": "use what is returned",
    "backend": "there is one, leave it out",
    "rpc_backend_options": "use options=rpc.Options(...)",
}
"""By option: what to write instead."""


class _Elsewhere:
    """Stands in place of a method: raises, and says what to write."""

    __slots__ = ("_advice",)

    def __init__(self, noun: str, name: str, way: str) -> None:
        self._advice = f"a {noun} has no {name!r}: {way.format(name)}"

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(self._advice)


def advises(noun: str, rows: Mapping[str, str]) -> Callable[[_Class], _Class]:
    """Let a class say what to write instead of the familiar methods that it lacks."""

    def decorated(cls: _Class) -> _Class:
        for name, way in rows.items():
            setattr(cls, name, _Elsewhere(noun, name, way))
        return cls

    return decorated


def without_advice(instance: object, names: Iterable[str]) -> list[str]:
    """Return those of the names that `dir` finds that really exist."""
    return [name for name in names if type(getattr_static(instance, name, None)) is not _Elsewhere]


def advice_on_names(module: str, rows: Mapping[str, str]) -> Callable[[str], NoReturn]:
    """Return the ``__getattr__`` of a module: raises, and says what to write instead of a name."""

    def advise(name: str) -> NoReturn:
        way = rows.get(name)
        said = f"module {module!r} has no attribute {name!r}"
        raise AttributeError(said if way is None else f"{said}: {way.format(name)}")

    return advise


def unexpected(function: str, options: Mapping[str, object]) -> TypeError:
    """Return the error for options that a function does not have, by keyword."""
    name = next(iter(options))
    said = f"{function}() has no option {name!r}"
    way = _OPTIONS.get(name)
    return TypeError(said if way is None else f"{said}: {way}")
