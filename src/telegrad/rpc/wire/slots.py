"""What the serialiser takes out of an object: arrays, registered kinds, references, raw buffers.

Each such value gets a slot, in the order in which it was met; the rest of the object travels with
holes in their places. So nothing that carries numbers travels unseen, however deep it is hidden,
and an interceptor of a call sees and replaces the list of slots.

A slot's descriptor is [dtype code, bytes or None, ...] for an array (arrays.py),
[tag, metadata, [descriptors]] for a registered kind, [REFERENCE, ...] for a remote reference, [RAW]
for a buffer that an object's own pickling gave out. Knows nothing of how the rest travels.
"""

import enum
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from telegrad.errors import ProtocolViolation, TelegradError, Unserializable
from telegrad.rpc.wire import arrays, kinds
from telegrad.rpc.wire.arrays import CODES
from telegrad.rpc.wire.frames import Buffer

__all__ = ["RawBuffer", "Reference", "Role", "build_slots", "describe_slots", "role_of"]

REFERENCE: Final = -1
RAW: Final = -2
_ARRAY: Final = np.ndarray


class Reference:
    """The base of values that name something on another worker; see rref.py."""

    __slots__ = ()


class RawBuffer:
    """Bytes that some object's pickling handed out of band; opaque to everyone."""

    __slots__ = ("view",)

    def __init__(self, view: memoryview) -> None:
        self.view = view


class Role(enum.Enum):
    """What a type is to the serialiser."""

    ARRAY = "array"
    KIND = "registered kind"
    REFERENCE = "reference"


def role_of(type_: type) -> Role | None:
    """Return what the type is to the serialiser, or None if it has no slot."""
    if type_ is np.ndarray:
        return Role.ARRAY
    if kinds.find(type_) is not None:
        return Role.KIND
    if issubclass(type_, Reference):
        return Role.REFERENCE
    return None


def describe_slots(
    slots: Sequence[Any],
    buffers: list[Buffer],
    export: Callable[[Any], list[Any]] | None,
) -> list[list[Any]]:
    """Return the slots' descriptors; their bytes are appended to `buffers`."""
    descriptors: list[list[Any]] = []
    inline = arrays.inline_below(len(slots))
    for value in slots:
        type_ = type(value)
        if type_ is _ARRAY:
            code = CODES.get(value.dtype)
            if code is not None and value.nbytes < inline:
                # As `describe` does, without the call.
                descriptors.append([code, value.tobytes(), value.shape])
            else:
                descriptors.append(arrays.describe(value, buffers, inline))
            continue
        if type_ is RawBuffer:
            descriptors.append([RAW])
            buffers.append(value.view)
            continue
        kind = kinds.find(type_)
        if kind is not None:
            parts, metadata = kind.to_parts(value)
            if len(parts) == 1:
                inner = [arrays.describe(parts[0], buffers, inline)]
            else:
                below = inline // (len(parts) + 1)
                inner = [arrays.describe(part, buffers, below) for part in parts]
            descriptors.append([kind.tag, metadata, inner])
        elif isinstance(value, Reference) and export is not None:
            descriptors.append([REFERENCE, *export(value)])
        else:
            raise Unserializable(
                f"an interceptor put a {type_.__qualname__} where an array or a registered kind "
                "was expected"
            )
    return descriptors


def build_slots(
    descriptors: Sequence[list[Any]],
    buffers: Sequence[Buffer],
    first: int,
    most_dimensions: int,
    accept: Callable[[list[list[Any]]], list[Any]] | None,
    imports: bool = True,
) -> list[Any]:
    """Return the values that the descriptors and the buffers from `first` on describe.

    `imports`: whether the module of a kind may be imported because one came.
    """
    slots: list[Any] = []
    made: list[tuple[int, str, list[Any], Any]] = []
    references: list[int] = []
    position = first
    build = arrays.build
    try:
        for descriptor in descriptors:
            tag = descriptor[0]
            if type(tag) is int and tag >= 0:
                data = descriptor[1]
                if type(data) is bytes:
                    data = bytearray(data)
                elif data is None:
                    data = buffers[position]
                    position += 1
                slots.append(build(descriptor, data, most_dimensions))
            elif type(tag) is str:
                _, metadata, inner = descriptor
                if len(inner) == 1 and type(data := inner[0][1]) is bytes:
                    parts = [build(inner[0], bytearray(data), most_dimensions)]
                else:
                    parts, position = arrays.build_all(inner, buffers, position, most_dimensions)
                made.append((len(slots), tag, parts, metadata))
                slots.append(None)
            elif tag == RAW:
                slots.append(buffers[position])
                position += 1
            elif tag == REFERENCE and accept is not None:
                references.append(len(slots))
                slots.append(descriptor[1:])
            else:
                raise ProtocolViolation(f"expected a slot's descriptor, got {descriptor!r}")
    except TelegradError:
        raise
    except (LookupError, TypeError, ValueError) as error:
        raise ProtocolViolation(
            f"the slots {descriptors!r} don't fit the {len(buffers)} buffers of the frame: {error}"
        ) from error
    if position != len(buffers):
        raise ProtocolViolation(
            f"expected {position} buffers for the slots {descriptors!r}, got {len(buffers)}"
        )
    if references and accept is not None:
        # All at once, so that they are counted in few messages; and before any other value is made,
        # which may fail: the sender would wait for ever to hear of those that were not accepted.
        for index, handle in zip(references, accept([slots[index] for index in references])):
            slots[index] = handle
    for index, tag, parts, metadata in made:
        kind = kinds.find_by_tag(tag, imports)
        if kind is None:
            raise Unserializable(
                f"a value of kind {tag!r} came, which is not registered here: import the module "
                f"that registers it, {tag.rpartition('.')[0]!r}, on this worker"
            )
        try:
            slots[index] = kind.from_parts(parts, metadata)
        except TelegradError:
            raise
        except (LookupError, TypeError, ValueError) as error:
            if not kind.is_own:
                raise
            raise ProtocolViolation(
                f"no worker sends a value of kind {tag!r} as {len(parts)} arrays with "
                f"{metadata!r:.100}: {error!r}"
            ) from error
    return slots
