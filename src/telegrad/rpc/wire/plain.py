"""Containers and numbers without pickle, for strict mode.

Atoms (None, bool, int, float, str, bytes) stand for themselves; everything else is a list whose
first item is its tag. Types without a tag are refused, and the error names the path. Unlike pickle,
this sends a list that is referred to twice as two lists.

Invariant: decoding builds nothing but the types in this file and never imports or calls by name.
"""

from collections.abc import Callable
from typing import Any, Final

from telegrad.errors import ProtocolViolation, Unserializable
from telegrad.rpc.wire.header_check import check_keys
from telegrad.rpc.wire.slots import has_slot

_LIST, _TUPLE, _DICT, _SET, _FROZENSET, _COMPLEX, _SLOT, _BIG, _SLICE, _ELLIPSIS = range(10)
# How deep containers may nest: each level takes two frames of Python's stack.
_MOST_DEPTH: Final = 200
_ATOMS: Final = frozenset((type(None), bool, float, str, bytes))
_SEQUENCES: Final[dict[type, int]] = {list: _LIST, tuple: _TUPLE, set: _SET, frozenset: _FROZENSET}
_BUILDERS: Final[dict[int, Callable[[Any], Any]]] = {
    _LIST: list,
    _TUPLE: tuple,
    _SET: set,
    _FROZENSET: frozenset,
}


def dump(value: Any, name: str, slots: list[Any]) -> Any:
    """Return the tree; append values that have slots to `slots`."""
    try:
        return _dump(value, name, slots, _MOST_DEPTH)
    except RecursionError:
        # The caller has used up most of the stack.
        raise _too_deep(name) from None


def _too_deep(path: str) -> Unserializable:
    return Unserializable(f"{path} is nested too deeply to be sent, or contains itself")


def _dump(value: Any, path: str, slots: list[Any], depth: int) -> Any:
    type_ = type(value)
    if type_ in _ATOMS:
        return value
    if type_ is int:
        return value if -(1 << 63) <= value < 1 << 64 else [_BIG, hex(value)]
    if depth <= 0:
        raise _too_deep(path)
    if type_ in _SEQUENCES:
        return [
            _SEQUENCES[type_],
            *(_dump(v, f"{path}[{i}]", slots, depth - 1) for i, v in enumerate(value)),
        ]
    if type_ is dict:
        tree: list[Any] = [_DICT]
        for key, item in value.items():
            tree.append(_dump(key, f"{path} (a key)", slots, depth - 1))
            tree.append(_dump(item, f"{path}[{key!r}]", slots, depth - 1))
        return tree
    if type_ is complex:
        return [_COMPLEX, value.real, value.imag]
    if type_ is slice:
        parts = (value.start, value.stop, value.step)
        return [_SLICE, *(_dump(part, path, slots, depth - 1) for part in parts)]
    if value is Ellipsis:
        return [_ELLIPSIS]
    if has_slot(value):
        slots.append(value)
        return [_SLOT, len(slots) - 1]
    raise Unserializable(
        f"{path} can't be sent: strict mode sends arrays, numbers, strings and containers of them, "
        f"not {type_.__qualname__}"
    )


def load(tree: Any, slots: list[Any]) -> Any:
    """Return the value that the tree describes."""
    try:
        return _load(tree, slots, _MOST_DEPTH)
    except (TypeError, ValueError, IndexError, RecursionError) as error:
        raise ProtocolViolation(f"expected a tree of plain values: {error}") from error


def _load(tree: Any, slots: list[Any], depth: int) -> Any:
    if type(tree) is not list:
        return tree
    if depth <= 0:
        raise ProtocolViolation("a value is nested more deeply than any that is sent")
    tag = tree[0]
    builder = _BUILDERS.get(tag)
    if builder is not None:
        values = [_load(item, slots, depth - 1) for item in tree[1:]]
        if tag in (_SET, _FROZENSET):
            check_keys(values)
        return builder(values)
    if tag == _DICT:
        items = [_load(item, slots, depth - 1) for item in tree[1:]]
        check_keys(items[::2])
        return dict(zip(items[::2], items[1::2], strict=True))
    if tag == _SLOT:
        index = tree[1]
        if not 0 <= index < len(slots):
            raise ProtocolViolation(f"expected one of {len(slots)} slots, got number {index}")
        return slots[index]
    if tag == _COMPLEX:
        return complex(tree[1], tree[2])
    if tag == _SLICE:
        return slice(*(_load(item, slots, depth - 1) for item in tree[1:4]))
    if tag == _BIG:
        return int(tree[1], 16)
    if tag == _ELLIPSIS:
        return ...
    raise ProtocolViolation(f"expected the tag of a plain value, got {tag!r}")
