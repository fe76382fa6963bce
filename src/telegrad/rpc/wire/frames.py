"""The frame: a fixed prefix, a header, then raw buffers.

    prefix   kind u8 | flags u8 | buffers u16 | header bytes u32
             body bytes u64 | id u64 | parent u64
    header   msgpack; its meaning depends on the kind
    body     a table with one entry a buffer, then the buffers, each at a multiple of 16 bytes

An entry of the table is the buffer's size. With the flag PLACED it is (size, segment, fresh): a
segment of 0 means that the buffer is in the body, any other number that it lies in shared memory;
`fresh` is the size of a segment whose descriptor was sent with this frame, else 0.

A frame knows nothing of calls or values. Invariant: every size is compared with the connection's
limits before anything of that size is allocated.
"""

import struct
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from telegrad.errors import ProtocolViolation, UsageError
from telegrad.rpc.security.introduction import Limits

Buffer = bytes | bytearray | memoryview

# Kinds.
REFUSED: Final = 0  # not on the wire: a request that was skipped; its header: its kind, then why
CALL: Final = 1  # run a function; answered
ANSWER: Final = 2  # the result of CALL or SERVICE
FAILURE: Final = 3  # the exception of CALL or SERVICE
SERVICE: Final = 4  # a message of another protocol; answered
NOTICE: Final = 5  # the same, one way
PING: Final = 6
PONG: Final = 7
BYE: Final = 8  # this worker leaves on purpose
HELLO: Final = 9  # who dialled, where it listens, which paths it gave up
KINDS: Final = range(CALL, HELLO + 1)  # on the wire
ANSWERS: Final = (ANSWER, FAILURE)

# Flags.
PLACED: Final = 1  # some buffers lie in shared memory
WAITING: Final = 2  # a thread of the caller waits for the answer and can run nested calls
CARRIES: Final = 4  # the answer holds references: it is opened even if its call was given up
CREATES: Final = 8  # the call's result stays there, as the reference numbered `parent`
UNOPENED: Final = 16  # with FAILURE: the request was refused without unpacking it
GRANTED: Final = 32  # the request was announced, and there is room for it

PREFIX: Final = struct.Struct("<BBHIQQQ")
PLACED_ENTRY: Final = 24
"""The bytes of an entry of the table with the flag PLACED."""
_ALIGN: Final = 16
# The limit counts the buffers alone; each has an entry and padding besides.
_MOST_BESIDE: Final = PLACED_ENTRY + _ALIGN
_PADS: Final = tuple(b"\0" * n for n in range(_ALIGN))
_SIZES: Final = tuple(struct.Struct(f"<{n}Q") for n in range(17))
_JOIN_BELOW: Final = 32768
_MOST_BUFFERS: Final = (1 << 16) - 1


class Frame(msgspec.Struct, gc=False):
    """One message to send, or as received: then `buffers` are views of memory of their own.

    Between reading and mapping, buffers in shared memory are Placements. `cost`: how many bytes of
    the worker's budget it takes until it is served. `waits`: how many bytes it needs of the budget
    before that, and how many it takes of the anteroom meanwhile. `forks`: an answer's references.
    """

    kind: int
    flags: int = 0
    ident: int = 0
    parent: int = 0
    header: bytes | bytearray = b""
    buffers: Sequence[Any] = ()
    cost: int = 0
    forks: list[int] | None = None
    waits: tuple[int, int] | None = None


class Placement(msgspec.Struct, frozen=True, gc=False):
    """Where a buffer lies in shared memory instead of in the body."""

    segment: int
    fresh: int
    nbytes: int


def _sizes(count: int) -> struct.Struct:
    return _SIZES[count] if count < len(_SIZES) else struct.Struct(f"<{count}Q")


def pack(
    kind: int,
    flags: int,
    ident: int,
    parent: int,
    header: bytes | bytearray,
    buffers: Sequence[Buffer | Placement],
) -> list[Buffer]:
    """Return the frame's parts, in order; a small frame is one part."""
    if not buffers:
        return [PREFIX.pack(kind, flags, 0, len(header), 0, ident, parent) + header]
    count = len(buffers)
    if count > _MOST_BUFFERS:
        raise UsageError(
            f"{count} buffers are more than the {_MOST_BUFFERS} of one message: join small arrays "
            "into one, or send some of them apart"
        )
    if flags & PLACED:
        entries: list[int] = []
        for buffer in buffers:
            if isinstance(buffer, Placement):
                entries += (buffer.nbytes, buffer.segment, buffer.fresh)
            else:
                entries += (len(buffer), 0, 0)
        table = _sizes(3 * count).pack(*entries)
    else:
        table = _sizes(count).pack(*map(len, buffers))  # type: ignore[arg-type]
    parts: list[Buffer] = [b"", header, table]
    size = len(table)
    for buffer in buffers:
        if isinstance(buffer, Placement):
            continue
        pad = -size % _ALIGN
        if pad:
            parts.append(_PADS[pad])
        parts.append(buffer)
        size += pad + len(buffer)
    parts[0] = PREFIX.pack(kind, flags, count, len(header), size, ident, parent)
    if size + len(header) < _JOIN_BELOW:
        return [b"".join(parts)]
    return parts


def body_bytes(buffers: Sequence[Buffer]) -> int:
    """Return the size of a frame's body with these buffers, none of them in shared memory."""
    size = 8 * len(buffers)
    for buffer in buffers:
        size += -size % _ALIGN + len(buffer)
    return size


def check_prefix(fields: tuple[int, int, int, int, int, int, int], limits: Limits) -> None:
    """Raise ProtocolViolation for the fields of a prefix that no worker sends."""
    kind, _, count, header, body, _, _ = fields
    if kind not in KINDS:
        raise ProtocolViolation(f"expected a frame of kind 1 to {HELLO}, got kind {kind}")
    if header > limits.header_bytes:
        raise ProtocolViolation(
            f"a header of {header} bytes is larger than the {limits.header_bytes} agreed on"
        )
    if body > limits.payload_bytes + count * _MOST_BESIDE:
        raise ProtocolViolation(
            f"a payload of {body} bytes is larger than the {limits.payload_bytes} agreed on"
        )
    if bool(body) != bool(count):
        raise ProtocolViolation(f"{count} buffers can't fill a body of {body} bytes")


def split_body(body: memoryview, count: int, flags: int) -> list[memoryview | Placement]:
    """Return the body's buffers; check the sizes in its table against the body."""
    width = 3 if flags & PLACED else 1
    if 8 * width * count > len(body):
        raise ProtocolViolation(f"a table of {count} buffers exceeds the body's {len(body)} bytes")
    entries = _sizes(width * count).unpack_from(body)
    position = 8 * width * count
    if width == 1 and count == 1:
        start = position + -position % _ALIGN
        if start + entries[0] != len(body):
            raise ProtocolViolation(
                f"a buffer of {entries[0]} bytes does not fill a body of {len(body)}"
            )
        return [body[start:]]
    buffers: list[memoryview | Placement] = []
    for index in range(0, len(entries), width):
        nbytes = entries[index]
        if width == 3 and entries[index + 1]:
            buffers.append(Placement(entries[index + 1], entries[index + 2], nbytes))
            continue
        position += -position % _ALIGN
        end = position + nbytes
        if end > len(body):
            raise ProtocolViolation(
                f"a buffer that ends at byte {end} exceeds the body's {len(body)} bytes"
            )
        buffers.append(body[position:end])
        position = end
    if position != len(body):
        raise ProtocolViolation(f"the buffers end at byte {position} of a body of {len(body)}")
    return buffers


def split_table(table: bytes | bytearray, count: int) -> list[Placement]:
    """Return the Placements in the table of a frame with the flag PLACED."""
    if count * PLACED_ENTRY > len(table):
        raise ProtocolViolation(f"a table of {count} buffers exceeds the {len(table)} bytes")
    entries = _sizes(3 * count).unpack_from(table)
    rows = zip(entries[::3], entries[1::3], entries[2::3])
    return [Placement(segment, fresh, nbytes) for nbytes, segment, fresh in rows if segment]
