"""What a worker says of itself when a connection opens: one message of fixed size.

An introduction is the only thing that is parsed before the other side has proved the cluster's
key, so it has one length, one layout and no choices: integers, a nonce and a padded name. Nothing
in it decides how much is read or allocated.

It knows nothing of keys, sockets or states. Invariant: `encode` and `decode` are inverse, and a
message that `decode` takes is the only encoding of its introduction, so two sides that hash the
bytes hash the same meaning.
"""

import enum
import re
import struct

import msgspec
from msgspec.structs import astuple

from telegrad.errors import ProtocolViolation, UsageError

__all__ = [
    "INTRODUCTION_BYTES",
    "NEWEST_VERSION",
    "NONCE_BYTES",
    "OLDEST_VERSION",
    "Introduction",
    "Limits",
    "Side",
    "check_worker_name",
    "could_be_introduction",
]

OLDEST_VERSION = 1
NEWEST_VERSION = 1
NONCE_BYTES = 32

_MAGIC = b"telegrad"
_NAME_BYTES = 128
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}")
# magic, side, segments, oldest, newest, incarnation, three limits, nonce, name
_LAYOUT = struct.Struct(f"!8sBBHHQIQH{NONCE_BYTES}sB{_NAME_BYTES}s")

INTRODUCTION_BYTES = _LAYOUT.size


class Side(enum.IntEnum):
    """Which end of the connection speaks."""

    DIALLER = 1
    LISTENER = 2


class Limits(msgspec.Struct, frozen=True):
    """The most that a worker takes from its peer; a connection runs under the smaller of both."""

    header_bytes: int = 64 << 20
    payload_bytes: int = 1 << 40
    dimensions: int = 64

    def smaller(self, other: "Limits") -> "Limits":
        """Return the limits that both keep to."""
        return Limits(*map(min, astuple(self), astuple(other)))


class Introduction(msgspec.Struct, frozen=True):
    """Who speaks, and what it can do. `segments`: it takes shared memory."""

    side: Side
    name: str
    incarnation: int
    nonce: bytes
    limits: Limits = Limits()
    segments: bool = False
    oldest: int = OLDEST_VERSION
    newest: int = NEWEST_VERSION

    def encode(self) -> bytes:
        """Return the message, `INTRODUCTION_BYTES` long."""
        name = self.name.encode("ascii")
        return _LAYOUT.pack(
            _MAGIC,
            self.side,
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
        )

    @staticmethod
    def decode(message: bytes) -> "Introduction":
        """Return what the message says, or raise ProtocolViolation."""
        if len(message) != INTRODUCTION_BYTES:
            raise ProtocolViolation(
                f"expected an introduction of {INTRODUCTION_BYTES} bytes, got {len(message)}"
            )
        magic, side, segments, oldest, newest, incarnation, *rest = _LAYOUT.unpack(message)
        header_bytes, payload_bytes, dimensions, *rest = rest
        nonce, name_length, name_field = rest
        if magic != _MAGIC:
            raise ProtocolViolation(f"expected the bytes {_MAGIC!r} of a worker, got {magic!r}")
        name = name_field[:name_length].decode("ascii", "replace")
        if (
            side not in (Side.DIALLER, Side.LISTENER)
            or segments > 1
            or not 0 < oldest <= newest
            or name_length > _NAME_BYTES
            or name_field != name_field[:name_length].ljust(_NAME_BYTES, b"\0")
            or not _NAME.fullmatch(name)
        ):
            raise ProtocolViolation(
                "expected a well-formed introduction, got one with side "
                f"{side}, versions {oldest} to {newest}, name {name!r}"
            )
        return Introduction(
            Side(side),
            name,
            incarnation,
            nonce,
            Limits(header_bytes, payload_bytes, dimensions),
            bool(segments),
            oldest,
            newest,
        )


def could_be_introduction(received: bytes) -> bool:
    """Say whether the bytes so far may begin an introduction: a stranger is known by eight."""
    return received[: len(_MAGIC)] == _MAGIC[: len(received)]


def check_worker_name(name: str) -> str:
    """Return the name, or raise UsageError with what a worker may be called."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            "expected a worker's name of 1 to 128 ASCII letters, digits and the signs _ . : - "
            f"(the last three not first), got {name!r}: choose a name like 'trainer0'"
        )
    return name
