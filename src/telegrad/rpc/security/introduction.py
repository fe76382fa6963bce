"""An introduction: what a worker says about itself when a connection opens, in a fixed size.

An introduction is the only message that is parsed before the other side has proved the cluster's
key, so it has one length, one layout and no choices: integers, a nonce, padded names and the two
ends of the connection. Nothing in it decides how much is read or allocated.

Nothing here knows keys, sockets or states. Invariant: `encode` and `decode` are inverse, and a
message that `decode` accepts is the only encoding of its introduction, so two sides that hash the
same bytes mean the same.
"""

import enum
import ipaddress
import re
import struct

import msgspec
from msgspec.structs import astuple

from telegrad.errors import ProtocolViolation, UsageError

OLDEST_VERSION = 3
NEWEST_VERSION = 3
NONCE_BYTES = 32

_MAGIC = b"telegrad"
_NAME_BYTES = 128
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}")
# An IPv6 address and a port for each end of a connection.
_ENDS = struct.Struct("!16sH16sH")
# magic, side, purpose, segments, oldest, newest, incarnation, three limits, nonce, name, expected
# name, ends
_LAYOUT = struct.Struct(f"!8sBBBHHQIQH{NONCE_BYTES}sB{_NAME_BYTES}sB{_NAME_BYTES}s{_ENDS.size}s")

INTRODUCTION_BYTES = _LAYOUT.size


class Side(enum.IntEnum):
    """An end of the connection."""

    DIALLER = 1
    LISTENER = 2


class Purpose(enum.IntEnum):
    """What a connection is for; a proof for one purpose is worthless for another."""

    LINK = 1
    MEETING = 2

    @property
    def place(self) -> str:
        """The place to which such a connection leads."""
        return "the listener of a worker" if self is Purpose.LINK else "a meeting place"


class Ends(msgspec.Struct, frozen=True):
    """The two ends of a TCP connection, an (IP address, port) each, as one side sees them.

    If nothing lies between the two sides, both see the same.
    """

    dialler: tuple[str, int]
    listener: tuple[str, int]

    def __str__(self) -> str:
        dialler, listener = self.dialler, self.listener
        return f"from {dialler[0]} port {dialler[1]} to {listener[0]} port {listener[1]}"

    def encode(self) -> bytes:
        """Return the fixed bytes of both ends."""
        return _ENDS.pack(
            _pack_host(self.dialler[0]),
            self.dialler[1],
            _pack_host(self.listener[0]),
            self.listener[1],
        )

    @staticmethod
    def decode(field: bytes) -> "Ends | None":
        """Return the ends; None if none were stated."""
        if not any(field):
            return None
        dialler, dialler_port, listener, listener_port = _ENDS.unpack(field)
        return Ends((_unpack_host(dialler), dialler_port), (_unpack_host(listener), listener_port))


def _pack_host(host: str) -> bytes:
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        address = ipaddress.IPv6Address(f"::ffff:{address}")
    return address.packed


def _unpack_host(packed: bytes) -> str:
    address = ipaddress.IPv6Address(packed)
    return str(address.ipv4_mapped or address)


class Limits(msgspec.Struct, frozen=True):
    """The most that a worker accepts from its peer; the smaller limits of both sides hold."""

    header_bytes: int = 64 << 20
    payload_bytes: int = 1 << 40
    dimensions: int = 64

    def smaller(self, other: "Limits") -> "Limits":
        """Return the limits that satisfy both."""
        return Limits(*map(min, astuple(self), astuple(other)))


class Introduction(msgspec.Struct, frozen=True):
    """Who speaks, to whom, what for, and with which abilities.

    `expected` is the name of the worker that the dialler dials, "" at a meeting place. `ends` are
    the connection's, if the proof is bound to them. `segments`: whether shared memory is accepted.
    """

    side: Side
    name: str
    incarnation: int
    nonce: bytes
    limits: Limits = Limits()
    segments: bool = False
    purpose: Purpose = Purpose.LINK
    expected: str = ""
    ends: Ends | None = None
    oldest: int = OLDEST_VERSION
    newest: int = NEWEST_VERSION

    def encode(self) -> bytes:
        """Return the message, `INTRODUCTION_BYTES` long."""
        name, expected = self.name.encode("ascii"), self.expected.encode("ascii")
        return _LAYOUT.pack(
            _MAGIC,
            self.side,
            self.purpose,
            self.segments,
            self.oldest,
            self.newest,
            self.incarnation,
            self.limits.header_bytes,
            self.limits.payload_bytes,
            self.limits.dimensions,
            self.nonce,
            len(name),
            name,
            len(expected),
            expected,
            b"" if self.ends is None else self.ends.encode(),
        )

    @staticmethod
    def decode(message: bytes) -> "Introduction":
        """Return the introduction in the message, or raise ProtocolViolation."""
        if len(message) != INTRODUCTION_BYTES:
            raise ProtocolViolation(
                f"expected an introduction of {INTRODUCTION_BYTES} bytes, got {len(message)}"
            )
        magic, side, purpose, segments, oldest, newest, incarnation, *rest = _LAYOUT.unpack(message)
        header_bytes, payload_bytes, dimensions, nonce, *rest = rest
        name_length, name_field, expected_length, expected_field, ends = rest
        if magic != _MAGIC:
            raise ProtocolViolation(f"expected the bytes {_MAGIC!r} of a worker, got {magic!r}")
        name = _padded(name_field, name_length)
        expected = _padded(expected_field, expected_length) if expected_length else ""
        if (
            side not in (Side.DIALLER, Side.LISTENER)
            or purpose not in (Purpose.LINK, Purpose.MEETING)
            or segments > 1
            or not 0 < oldest <= newest
            or name is None
            or expected is None
            or (not expected_length and any(expected_field))
        ):
            raise ProtocolViolation(
                f"expected a well-formed introduction, got one with side {side}, purpose "
                f"{purpose}, versions {oldest} to {newest}, name {name_field[:name_length]!r}"
            )
        return Introduction(
            Side(side),
            name,
            incarnation,
            nonce,
            Limits(header_bytes, payload_bytes, dimensions),
            bool(segments),
            Purpose(purpose),
            expected,
            Ends.decode(ends),
            oldest,
            newest,
        )


def _padded(field: bytes, length: int) -> str | None:
    """Return the name in the field; None unless there is one, encoded as `encode` would."""
    name = field[:length].decode("ascii", "replace")
    is_sound = length <= _NAME_BYTES and field == field[:length].ljust(_NAME_BYTES, b"\0")
    return name if is_sound and _NAME.fullmatch(name) else None


def could_be_introduction(received: bytes) -> bool:
    """Say whether an introduction may begin with these bytes; the first eight decide."""
    return received[: len(_MAGIC)] == _MAGIC[: len(received)]


def check_worker_name(name: str) -> str:
    """Return the name, or raise UsageError with the rules for names."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            "expected a worker's name of 1 to 128 ASCII letters, digits and the signs _ . : - "
            f"(the last three not first), got {name!r}: choose a name like 'trainer0'"
        )
    return name
