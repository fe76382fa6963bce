"""Frames survive the way, and nothing malformed gets past the prefix or the table."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telegrad.errors import ProtocolViolation
from telegrad.rpc.security.introduction import Limits
from telegrad.rpc.wire.frames import (
    CALL,
    PLACED,
    PLACED_ENTRY,
    PREFIX,
    Placement,
    check_prefix,
    pack,
    split_body,
    split_table,
)


def unpack(parts, limits=None):
    data = b"".join(bytes(part) for part in parts)
    fields = PREFIX.unpack_from(data)
    check_prefix(fields, limits or Limits())
    kind, flags, count, header, body, ident, parent = fields
    start = PREFIX.size + header
    assert len(data) == start + body
    buffers = split_body(memoryview(bytearray(data[start:])), count, flags) if count else []
    return kind, flags, ident, parent, data[PREFIX.size : start], buffers


@given(
    header=st.binary(max_size=50),
    buffers=st.lists(st.binary(max_size=70), max_size=20),
    ident=st.integers(0, 2**64 - 1),
)
def test_a_frame_comes_out_as_it_went_in(header, buffers, ident):
    kind, _, number, parent, head, out = unpack(pack(CALL, 0, ident, 7, header, buffers))
    assert (kind, number, parent, head) == (CALL, ident, 7, header)
    assert [bytes(buffer) for buffer in out] == buffers


def test_large_buffers_are_not_copied_into_one():
    large = memoryview(bytearray(1 << 20))
    parts = pack(CALL, 0, 1, 0, b"h", [large])
    assert any(part is large for part in parts)


def test_buffers_start_at_multiples_of_sixteen_bytes():
    parts = pack(CALL, 0, 1, 0, b"", [b"a" * 5, b"b" * 17, b"c" * 9])
    data = bytes(parts[0])[PREFIX.size :]
    assert data.index(b"b" * 17) % 16 == 0
    assert data.index(b"c" * 9) % 16 == 0


def test_placed_buffers_leave_only_their_place_in_the_table():
    place = Placement(segment=3, fresh=1 << 20, nbytes=500_000)
    *_, out = unpack(pack(CALL, PLACED, 1, 0, b"", [b"xy", place]))
    assert bytes(out[0]) == b"xy"
    assert out[1] == place


def test_an_unknown_kind_is_refused():
    with pytest.raises(ProtocolViolation, match="kind 99"):
        check_prefix((99, 0, 0, 0, 0, 0, 0), Limits())


def test_sizes_beyond_the_limits_are_refused_before_anything_is_allocated():
    limits = Limits(header_bytes=10, payload_bytes=100)
    with pytest.raises(ProtocolViolation, match="header of 11 bytes"):
        check_prefix((CALL, 0, 0, 11, 0, 0, 0), limits)
    with pytest.raises(ProtocolViolation, match="payload of 18446744073709551615 bytes"):
        check_prefix((CALL, 0, 1, 0, 2**64 - 1, 0, 0), limits)


def test_sizes_at_the_limits_are_taken():
    limits = Limits(header_bytes=10, payload_bytes=100)
    *_, header, buffers = unpack(pack(CALL, 0, 1, 0, b"h" * 10, [b"a" * 1, b"b" * 99]), limits)
    assert len(header) == 10
    assert [len(buffer) for buffer in buffers] == [1, 99]


def test_the_table_alone_tells_what_lies_in_shared_memory():
    places = [Placement(segment=3, fresh=1 << 20, nbytes=500_000), Placement(4, 0, 70_000)]
    (data,) = pack(CALL, PLACED, 1, 0, b"", [places[0], b"xy", places[1]])
    table = data[PREFIX.size :][: 3 * PLACED_ENTRY]
    assert split_table(table, 3) == places
    with pytest.raises(ProtocolViolation, match="a table of 3 buffers exceeds the 71 bytes"):
        split_table(table[:-1], 3)


@pytest.mark.parametrize("buffers", [[b"a" * 16], [b"a" * 16, b"b" * 16]])
def test_buffers_that_do_not_fill_their_body_are_refused(buffers):
    (data,) = pack(CALL, 0, 1, 0, b"", buffers)
    body = memoryview(bytearray(data[PREFIX.size :] + b"more"))
    with pytest.raises(ProtocolViolation, match=f"a body of {len(body)}"):
        split_body(body, len(buffers), 0)


def test_a_body_without_buffers_is_refused():
    with pytest.raises(ProtocolViolation, match="0 buffers"):
        check_prefix((CALL, 0, 0, 0, 8, 0, 0), Limits())


@pytest.mark.parametrize(
    ("sizes", "length", "message"),
    [
        ((8, 8), 40, "a buffer that ends at byte 40 exceeds the body's 32 bytes"),
        ((8, 4), 48, "the buffers end at byte 36 of a body of 40"),
    ],
)
def test_sizes_that_do_not_fill_the_body_are_refused(sizes, length, message):
    body = struct.pack(f"<{len(sizes)}Q", *sizes).ljust(length - 8, b"x")
    with pytest.raises(ProtocolViolation, match=message):
        split_body(memoryview(bytearray(body)), len(sizes), 0)


def test_a_table_of_places_that_was_cut_off_is_refused():
    with pytest.raises(ProtocolViolation, match="a table of 2 buffers exceeds the 24 bytes"):
        split_table(bytes(PLACED_ENTRY), 2)


@given(body=st.binary(max_size=200), count=st.integers(1, 40), flags=st.sampled_from([0, PLACED]))
def test_random_bodies_are_split_or_refused(body, count, flags):
    try:
        buffers = split_body(memoryview(bytearray(body)), count, flags)
    except ProtocolViolation:
        return
    assert len(buffers) == count
    assert sum(len(b) for b in buffers if not isinstance(b, Placement)) <= len(body)
