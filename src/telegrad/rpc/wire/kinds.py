"""The types that are sent as raw arrays with a little metadata, inside any object.

A kind is a type that its owner registers: telegrad's Tensor by the layer above, PyTorch's when one
is first met. NumPy's arrays are built in. The table is the process's, because types are.

Knows no type but ndarray. Invariant: a tag means the same type on every worker, so registering
another type under a tag that is taken is refused.
"""

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

import msgspec
import numpy as np

from telegrad.errors import UsageError


class Kind(msgspec.Struct, frozen=True):
    """How one type is sent; a subclass without a kind of its own uses the same kind."""

    tag: str
    type: type
    to_parts: Callable[[Any], tuple[list["np.ndarray[Any, Any]"], Any]]
    from_parts: Callable[[list["np.ndarray[Any, Any]"], Any], Any]
    check: Callable[[Any], object] | None = None

    @property
    def is_own(self) -> bool:
        """Whether telegrad builds its values, so that errors there are not the user's."""
        return str(self.from_parts.__module__).startswith("telegrad.")


_lock = threading.RLock()
_loading = threading.RLock()
_by_type: dict[type, Kind] = {}
_by_tag: dict[str, Kind] = {}
_lazy: dict[str, Callable[[], object]] = {}
_unmet: list[str] = []
"""The modules of `_lazy` that ``load_imported`` has not tried."""


class _Found(dict[type, Kind | None]):
    """The types looked up before, including those without a kind."""

    def __missing__(self, type_: type) -> Kind | None:
        for base in type_.__mro__:
            _load(base.__module__.partition(".")[0])
        # In one step: registering a kind at this moment must clear this entry, too.
        with _lock:
            kind = next((_by_type[base] for base in type_.__mro__ if base in _by_type), None)
            self[type_] = kind
        return kind


_found = _Found()
find: Callable[[type], Kind | None] = _found.__getitem__
"""Return the kind of the type, or None if its objects are pickled."""


def register(
    type_: type,
    to_parts: Callable[[Any], tuple[list["np.ndarray[Any, Any]"], Any]],
    from_parts: Callable[[list["np.ndarray[Any, Any]"], Any], Any],
    *,
    tag: str | None = None,
    check: Callable[[Any], object] | None = None,
) -> None:
    """Send objects of the type as `to_parts(obj) -> (raw arrays, small metadata)`.

    The metadata is anything that msgpack can encode. `from_parts` gets writable arrays of its own.
    `check` raises Unserializable for an object of the type that can't be sent all the same.
    """
    tag = tag or f"{type_.__module__}.{type_.__qualname__}"
    with _lock:
        taken = _by_tag.get(tag)
        if taken is not None and taken.type is not type_:
            raise UsageError(
                f"the tag {tag!r} already stands for {taken.type.__qualname__}: "
                f"register {type_.__qualname__} under another"
            )
        kind = Kind(tag, type_, to_parts, from_parts, check)
        _by_type[type_] = _by_tag[tag] = kind
        _found.clear()


def register_lazily(module: str, loader: Callable[[], object]) -> None:
    """Call `loader`, which registers kinds, when a type of the module is first met."""
    with _lock:
        _lazy[module] = loader
        if module not in _unmet:
            _unmet.append(module)
        _found.clear()


def load_imported() -> None:
    """Load the kinds of modules that the program has imported, before any value is met.

    A failure is not reported here but where a value is met: the module imported under that name may
    be too old, or stand for one that is missing.
    """
    global _unmet
    if sys.modules.keys().isdisjoint(_unmet):
        return
    for module in _unmet:
        found = sys.modules.get(module)
        # Skip a module being imported, which is not in use yet: its thread may wait for this one.
        if found is not None and not _is_being_imported(found):
            with suppress(Exception):
                _load(module)
            with _lock:
                # A new list, since the old one is being iterated over.
                _unmet = [other for other in _unmet if other != module]


def _is_being_imported(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def check(value: Any) -> None:
    """Raise if a value of a registered kind can't be sent."""
    kind = find(type(value))
    if kind is not None and kind.check is not None:
        kind.check(value)


def find_by_tag(tag: str, imports: bool = True) -> Kind | None:
    """Return the kind that a peer named, loading it if its module is known.

    Unless `imports`, load it only if the module has been imported already.
    """
    kind = _by_tag.get(tag)
    if kind is None:
        module = tag.partition(".")[0]
        if imports or module in sys.modules:
            _load(module)
        kind = _by_tag.get(tag)
    return kind


def _load(module: str) -> None:
    # A lock of its own, held while it loads: another thread that meets the same type must wait, or
    # it would take the type for one without a kind.
    with _loading:
        loader = _lazy.pop(module, None)
        if loader is None:
            return
        try:
            loader()
        except BaseException:
            _lazy[module] = loader
            raise
