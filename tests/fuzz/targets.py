"""What is fuzzed: functions that parse what a peer sent, each with inputs that are well formed.

A target takes bytes and returns, or raises one of telegrad's own errors: anything else is a defect.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec
import numpy as np

import telegrad as tg
from telegrad.distributed.contexts import tensor_kind
from telegrad.errors import ProtocolViolation
from telegrad.rpc.calls.service import open_message, seal_message
from telegrad.rpc.security.introduction import Ends, Introduction, Limits, Purpose, Side
from telegrad.rpc.wire import plain
from telegrad.rpc.wire.codec import Codec
from telegrad.rpc.wire.failures import dump_failure, load_failure
from telegrad.rpc.wire.frames import CALL, PLACED, PREFIX, check_prefix, pack, split_body
from telegrad.rpc.wire.functions import expose

__all__ = ["TARGETS", "Target"]

LIMITS = Limits()
CODEC = Codec(strict=True)
tensor_kind.register()


class Target(NamedTuple):
    """A parser, and some inputs that it takes."""

    parse: Callable[[bytes], object]
    seeds: Callable[[], Iterator[bytes]]


@expose
def served(*args: object, **kwargs: object) -> None:
    """A function that calls may name."""


VALUES: list[object] = [
    None,
    [1, 2.5, "text", b"bytes", True],
    {"a": (1, 2), "b": {3, 4}, 5: frozenset((6,))},
    [np.arange(6.0).reshape(2, 3), 1 + 2j, 1 << 80, slice(1, None, 2), ...],
    [tg.tensor([1.0, 2.0], requires_grad=True), -1.5],
]


def joined(header: bytes, buffers: list[object]) -> bytes:
    """A header and buffers as one input; see `parted`."""
    parts = [bytes(part) for part in (header, *map(memoryview, buffers))]  # type: ignore[arg-type]
    return b"".join(len(part).to_bytes(3, "little") + part for part in parts)


def parted(data: bytes) -> tuple[bytes, list[memoryview]]:
    """The header and the buffers of an input."""
    parts: list[bytes] = []
    at = 0
    while at < len(data) and len(parts) < 8:
        size = int.from_bytes(data[at : at + 3], "little")
        parts.append(data[at + 3 : at + 3 + size])
        at += 3 + size
    header, *buffers = parts or [b""]
    return header, [memoryview(bytearray(each)) for each in buffers]


def parse_frame(data: bytes) -> None:
    if len(data) < PREFIX.size:
        return
    fields = PREFIX.unpack_from(data)
    check_prefix(fields, LIMITS)
    _, flags, count, header, body, _, _ = fields
    rest = memoryview(bytearray(data[PREFIX.size + header :]))
    if count and len(rest) >= body:
        split_body(rest[:body], count, flags)


def frames() -> Iterator[bytes]:
    for flags in (0, PLACED):
        for buffers in ([], [b"x" * 5], [b"", b"y" * 40, b"z"]):
            yield b"".join(bytes(part) for part in pack(CALL, flags, 1, 2, b"header", buffers))


def parse_call(data: bytes) -> None:
    header, buffers = parted(data)
    sealed, slots = CODEC.unseal(header, buffers, LIMITS)
    CODEC.open_call(sealed, slots, buffers)


def calls() -> Iterator[bytes]:
    for value in VALUES:
        for kwargs in ({}, {"name": value}):
            header, buffers = CODEC.seal(CODEC.pack_call(served, (value, 1), kwargs), None)
            yield joined(header, buffers)


def parse_result(data: bytes) -> None:
    header, buffers = parted(data)
    sealed, slots = CODEC.unseal(header, buffers, LIMITS)
    CODEC.open_result(sealed, slots, buffers)


def results() -> Iterator[bytes]:
    for value in (*VALUES, (1, np.ones(3))):
        header, buffers = CODEC.seal(CODEC.pack_result(value), None)
        yield joined(header, buffers)


def parse_plain(data: bytes) -> None:
    try:
        tree = msgspec.msgpack.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return
    plain.load(tree, [1, 2])


def plains() -> Iterator[bytes]:
    for value in VALUES[:-1]:
        yield msgspec.msgpack.encode(plain.dump(value, "value", []))


def parse_service(data: bytes) -> None:
    header, buffers = parted(data)
    open_message(header, buffers, LIMITS.dimensions, strict=True)


def services() -> Iterator[bytes]:
    for arrays in ([], [np.arange(3)], [np.zeros((2, 0)), np.array(1.5)]):
        yield joined(*seal_message("name", [1, ["two"], {"3": None}], arrays))


def parse_failure(data: bytes) -> None:
    error = load_failure(data, strict=True)
    if not isinstance(error, Exception):
        raise AssertionError(f"a failure became {error!r}")


def failures() -> Iterator[bytes]:
    for error in (ValueError("wrong"), ProtocolViolation("broken"), KeyError(1)):
        yield dump_failure(error, "worker", strict=True)


def parse_introduction(data: bytes) -> None:
    if Introduction.decode(data).encode() != data:
        raise AssertionError("an introduction has two encodings")


def introductions() -> Iterator[bytes]:
    ends = Ends(("127.0.0.1", 50000), ("::1", 29500))
    for purpose, expected in ((Purpose.LINK, "ps"), (Purpose.MEETING, "")):
        yield Introduction(
            Side.DIALLER, "trainer", 1, b"n" * 32, purpose=purpose, expected=expected, ends=ends
        ).encode()
    yield Introduction(Side.LISTENER, "ps", 1, b"n" * 32, segments=True).encode()


TARGETS: dict[str, Target] = {
    "introduction": Target(parse_introduction, introductions),
    "frame": Target(parse_frame, frames),
    "call": Target(parse_call, calls),
    "result": Target(parse_result, results),
    "plain": Target(parse_plain, plains),
    "service": Target(parse_service, services),
    "failure": Target(parse_failure, failures),
}
