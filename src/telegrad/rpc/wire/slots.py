"""The values that are taken out of an object: arrays, registered kinds, references, raw buffers.

Each such value gets a slot, in the order in which it was met; the rest of the object is sent with
holes in their places. So no value that carries numbers is sent unseen, however deep it is hidden,
and an interceptor of a call sees and replaces the list of slots.

The arrays of a message, including those of registered kinds, are sent together (arrays.py). Unless
all slots are arrays, an `Entry` for each slot says what it is. Knows nothing about how the rest is
sent.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from telegrad.errors import ProtocolViolation, TelegradError, Unserializable
from telegrad.rpc.wire import kinds
from telegrad.rpc.wire.arrays import describe_all, is_raw
from telegrad.rpc.wire.frames import Buffer

_are_arrays: Final = frozenset((np.ndarray,)).issuperset
ARRAY, REFERENCE, RAW = range(3)


class Entry(msgspec.Struct, array_like=True, gc=False):
    """A slot of a message whose slots are not all arrays.

    `tag`: that of a registered kind, whose value is made of the next `count` arrays and of `facts`;
    else ARRAY, REFERENCE or RAW: an array, the next reference, or the next buffer that an object's
    own pickling gave out.
    """

    tag: int | str
    facts: Any
    count: Annotated[int, msgspec.Meta(ge=0)]


class Reference:
    """The base of values that name a value on another worker; see rref.py."""

    __slots__ = ()


class RawBuffer:
    """Bytes that an object's pickling gave out of band; opaque to all code here."""

    __slots__ = ("view",)

    def __init__(self, view: memoryview) -> None:
        self.view = view


def has_slot(value: Any) -> bool:
    """Say whether the value is taken out: a raw array, one of a registered kind, a reference."""
    type_ = type(value)
    if type_ is np.ndarray:
        return is_raw(value)
    return kinds.find(type_) is not None or issubclass(type_, Reference)


def describe_slots(
    slots: Sequence[Any],
    buffers: list[Buffer],
    export: Callable[[Any], list[Any]] | None,
) -> tuple[list[Any], list[Any] | None, list[Any] | None]:
    """Return the descriptors of arrays and, unless all slots are arrays, slots and references."""
    if _are_arrays(map(type, slots)):
        return describe_all(slots, buffers), None, None
    content: list[Any] = []
    entries: list[tuple[Any, ...]] = []
    references: list[list[Any]] = []
    raw: list[Buffer] = []
    for value in slots:
        type_ = type(value)
        if type_ is np.ndarray:
            content.append(value)
            entries.append((ARRAY, None, 1))
            continue
        kind = kinds.find(type_)
        if kind is not None:
            parts, facts = kind.to_parts(value)
            content += parts
            entries.append((kind.tag, facts, len(parts)))
        elif type_ is RawBuffer:
            raw.append(value.view)
            entries.append((RAW, None, 0))
        elif isinstance(value, Reference) and export is not None:
            references.append(export(value))
            entries.append((REFERENCE, None, 0))
        else:
            raise Unserializable(
                f"an interceptor put a {type_.__qualname__} where an array or a registered kind "
                "was expected"
            )
    descriptors = describe_all(content, buffers)
    buffers += raw
    return descriptors, entries, references


def build_slots(
    entries: Sequence[Entry],
    content: list[Any],
    references: Sequence[Any],
    raw: Sequence[Buffer],
    imports: bool = True,
) -> list[Any]:
    """Return the values of the slots, given all their parts.

    `imports`: whether a kind's module may be imported because a value of it came.
    """
    slots: list[Any] = []
    first = referred = handed = 0
    for entry in entries:
        tag, count = entry.tag, entry.count
        parts = content[first : first + count]
        first += count
        if type(tag) is str:
            kind = kinds.find_by_tag(tag, imports)
            if kind is None:
                raise Unserializable(
                    f"a value of kind {tag!r} came, which is not registered here: import the "
                    f"module that registers it, {tag.rpartition('.')[0]!r}, on this worker"
                )
            try:
                slots.append(kind.from_parts(parts, entry.facts))
            except TelegradError:
                raise
            except (LookupError, TypeError, ValueError) as error:
                if not kind.is_own:
                    raise
                raise ProtocolViolation(
                    f"no worker sends a value of kind {tag!r} as {len(parts)} arrays with "
                    f"{entry.facts!r:.100}: {error!r}"
                ) from error
        elif tag == ARRAY:
            slots += parts
        elif tag == REFERENCE:
            slots += references[referred : referred + 1]
            referred += 1
        else:
            slots += raw[handed : handed + 1]
            handed += 1
    if first != len(content) or referred != len(references) or handed != len(raw):
        raise ProtocolViolation(
            f"the slots {entries!r:.200} don't fit {len(content)} arrays, {len(references)} "
            f"references and {len(raw)} other buffers"
        )
    return slots
