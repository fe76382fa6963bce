"""Static arguments: those that are no arrays and steer a function of JAX, as for ``jax.jit``.

They are given by number or by name; if the function has a signature, either also gives the other.
"""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from telegrad.errors import DTypeError, UsageError
from telegrad.tensors.describe import kind_of

T = TypeVar("T", int, str)


def as_tuple(given: Any, kind: type[T], name: str) -> tuple[T, ...]:
    """Return ``static_argnums`` or ``static_argnames`` as a tuple."""
    listed = (given,) if isinstance(given, kind) else tuple(given)
    for each in listed:
        if not isinstance(each, kind):
            what = "numbers" if kind is int else "names"
            raise UsageError(f"expected {what} of arguments as {name}, got {each!r}")
    return listed


class Statics:
    """Which arguments of one function are static."""

    def __init__(
        self, f: Callable[..., Any], numbers: tuple[int, ...], names: tuple[str, ...]
    ) -> None:
        self._name = getattr(f, "__name__", type(f).__name__)
        self._numbers, self._names = set(numbers), set(names)
        if not numbers and not names:
            return
        positional, others, takes_any = _parameters(f)
        count = len(positional)
        self._numbers = {each + count if each < 0 else each for each in numbers}
        for name in names:
            if name in positional:
                self._numbers.add(positional.index(name))
            elif name not in others and not takes_any:
                raise UsageError(
                    f"expected static_argnames among {', '.join([*positional, *others])}, the "
                    f"arguments of {self._name}, got {name!r}"
                )
        self._names |= {positional[each] for each in self._numbers if each < count}

    def split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Return the static arguments, as a key, and the others: (args, kwargs)."""
        if not self._names and not self._numbers:
            return (), (args, kwargs)
        steering = tuple((i, x) for i, x in enumerate(args) if i in self._numbers)
        by_name = tuple((k, x) for k, x in sorted(kwargs.items()) if k in self._names)
        for where, value in (*steering, *by_name):
            if not _is_static(value):
                raise DTypeError(
                    f"expected a hashable value as the static argument {where!r} of {self._name}, "
                    f"got {kind_of(value)}; arrays and Tensors are no static arguments, and a "
                    "tuple will do for a list"
                )
        rest = tuple(x for i, x in enumerate(args) if i not in self._numbers)
        moving = rest, {k: x for k, x in kwargs.items() if k not in self._names}
        return (*_typed(steering), *_typed(by_name)), moving

    def joined(self, steering: Any, moving: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return args and kwargs of the function itself."""
        rest, named = moving
        args, kwargs = list(rest), dict(named)
        for where, _, value in steering:
            if isinstance(where, int):
                # In rising order, so that each gets its place.
                args.insert(where, value)
            else:
                kwargs[where] = value
        return args, kwargs


def _is_static(value: Any) -> bool:
    # Tensors have hashes, by identity, but compiled in they would lose their derivatives.
    if hasattr(value, "__dlpack__"):
        return False
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _typed(pairs: tuple[tuple[Any, Any], ...]) -> tuple[tuple[Any, type, Any], ...]:
    """Return the pairs with their types: 1, 1.0 and True are equal, but steer differently."""
    return tuple((where, type(value), value) for where, value in pairs)


def _parameters(f: Callable[..., Any]) -> tuple[list[str], list[str], bool]:
    """Return the names of positional parameters, of the others, and whether any name will do."""
    try:
        found = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        return [], [], True
    positional = [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    others = [p.name for p in found if p.kind is p.KEYWORD_ONLY]
    return positional, others, any(p.kind is p.VAR_KEYWORD for p in found)
