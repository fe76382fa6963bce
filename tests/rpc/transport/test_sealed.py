"""Records on plain TCP, with somebody in the middle of the wire who has no key.

The two sides hold real connections; what passes between them goes through the test's hands.
"""

import contextlib
import hmac
import math
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rpc.connected import PATIENCE, connected, identities, receive, receive_exactly
from tests.rpc.inside import socket_of

from telegrad.errors import ProtocolViolation
from telegrad.rpc.driver.frame_reader import FrameReader
from telegrad.rpc.driver.spin import Spinning
from telegrad.rpc.security.handshake import Agreement
from telegrad.rpc.security.introduction import Limits
from telegrad.rpc.security.keys import SessionKeys
from telegrad.rpc.transport.sealed import RECORD_BYTES, SealedConnection
from telegrad.rpc.wire.frames import CALL, pack

BESIDE = 4 + 16
THERE, BACK = b"t" * 32, b"b" * 32


class Wire:
    """Two sealed connections, a and b; `to_a` and `to_b` are the sockets of who stands between."""

    def __init__(self, there: bytes = THERE, back: bytes = BACK) -> None:
        end_of_a, self.to_a = socket.socketpair()
        end_of_b, self.to_b = socket.socketpair()
        self.a = seal(end_of_a, "b", SessionKeys(there, back))
        self.b = seal(end_of_b, "a", SessionKeys(back, there))

    def close(self) -> None:
        for each in (self.a, self.b, self.to_a, self.to_b):
            each.close()

    def overhear(self, size: int) -> bytes:
        """Return a record of `size` bytes that a has sent."""
        return self.to_a.recv(size + BESIDE, socket.MSG_WAITALL)


def seal(sock: socket.socket, peer: str, keys: SessionKeys) -> SealedConnection:
    return SealedConnection(sock, Agreement(peer, 1, 2, Limits(), False), "between", keys)


@pytest.fixture
def wire() -> Iterator[Wire]:
    with contextlib.closing(Wire()) as made:
        yield made


def say(wire: Wire, *texts: bytes) -> list[bytes]:
    """Let a send the texts; return their records."""
    for text in texts:
        assert wire.a.send_small(text, math.inf) is None
    return [wire.overhear(len(text)) for text in texts]


def hear(connection: SealedConnection, size: int = 100) -> bytes:
    buffer = bytearray(size)
    return bytes(buffer[: connection.recv_into_nowait(memoryview(buffer))])


def test_what_is_left_alone_arrives(wire: Wire) -> None:
    wire.to_b.sendall(b"".join(say(wire, b"one", b"two")))
    assert hear(wire.b) == b"onetwo"


def test_sending_nothing_sends_no_record(wire: Wire) -> None:
    """Frames that were kept may have gone with another thread's just before they are sent."""
    assert wire.a.send_small(b"", math.inf) is None
    assert wire.a.send([b"", b""]) is None
    wire.to_b.sendall(say(wire, b"next")[0])
    assert hear(wire.b) == b"next"


def test_a_tag_is_what_the_standard_librarys_hmac_gives(wire: Wire) -> None:
    for number, text in enumerate([b"one", b"x" * 5000, b"three"]):
        covered = struct.pack("<QI", number, len(text)) + text
        expected = hmac.digest(THERE, covered, "sha256")[:16]
        assert say(wire, text) == [struct.pack("<I", len(text)) + text + expected]


Attack = Callable[[list[bytes]], bytes]
ATTACKS: dict[str, Attack] = {
    "a record dropped": lambda said: said[1],
    "a record repeated": lambda said: said[0] + said[0],
    "records in another order": lambda said: said[1] + said[0],
    "a record cut short": lambda said: said[0][:-1] + said[1],
    "two records joined": lambda said: b"\x06\0\0\0" + said[0][4:7] + said[1][4:7] + said[1][7:],
    "no tag": lambda said: said[0][:7] + b"\0" * 16,
    "a record without payload": lambda said: b"\0\0\0\0" + b"\0" * 16 + b"?",
    "a record of another's making": lambda said: b"\x01\0\0\0x" + b"\xff" * 16,
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_what_was_not_sent_so_ends_the_connection(wire: Wire, attack: Attack) -> None:
    said = attack(say(wire, b"one", b"two"))
    wire.to_b.sendall(said)
    with pytest.raises(ProtocolViolation, match="changed, dropped, repeated or put in on the way"):
        hear(wire.b)
    # And it stays so, whatever comes.
    wire.to_b.sendall(say(wire, b"three")[0])
    with pytest.raises(ProtocolViolation):
        hear(wire.b)


def test_each_flipped_bit_is_noticed() -> None:
    with contextlib.closing(Wire()) as made:
        record = say(made, b"payload")[0]
    for position in range(8 * len(record)):
        flipped = bytearray(record)
        flipped[position // 8] ^= 1 << position % 8
        with contextlib.closing(Wire()) as made:
            made.to_b.sendall(bytes(flipped))
            made.to_b.shutdown(socket.SHUT_WR)
            # A size that was made larger waits for bytes that never come.
            with contextlib.suppress(ProtocolViolation):
                assert hear(made.b) == b""


def test_a_record_sent_back_to_its_maker_ends_the_connection(wire: Wire) -> None:
    wire.to_a.sendall(say(wire, b"one")[0])
    with pytest.raises(ProtocolViolation, match="expected record 0 of b, got one that it did not"):
        hear(wire.a)


def test_a_record_of_another_connection_ends_this_one(wire: Wire) -> None:
    with contextlib.closing(Wire(b"o" * 32, b"p" * 32)) as other:
        wire.to_b.sendall(say(other, b"one")[0])
    with pytest.raises(ProtocolViolation):
        hear(wire.b)


def test_a_size_that_no_worker_announces_is_not_waited_for(wire: Wire) -> None:
    wire.to_b.sendall((RECORD_BYTES + 1).to_bytes(4, "little") + b"x" * 20)
    with pytest.raises(ProtocolViolation, match=f"1 to {RECORD_BYTES} bytes from a, got one of"):
        hear(wire.b)


def test_nothing_of_a_frame_is_parsed_before_its_record_was_proved(wire: Wire) -> None:
    """The prefix names a size beyond the limits: a reader that saw it would say so."""
    frame = bytearray(pack(CALL, 0, 1, 0, b"header", ())[0])
    record = bytearray(say(wire, bytes(frame))[0])
    record[4 + 4 : 4 + 8] = b"\xff" * 4
    wire.to_b.sendall(bytes(record))
    with pytest.raises(ProtocolViolation, match="changed, dropped"):
        FrameReader(wire.b, Spinning(0.0)).read(time.monotonic())


@settings(deadline=None, max_examples=40)
@given(
    sizes=st.lists(
        st.integers(0, 3 * RECORD_BYTES) | st.just(RECORD_BYTES), min_size=1, max_size=5
    ),
    view=st.sampled_from([1000, RECORD_BYTES, 1 << 20]),
)
def test_buffers_of_all_sizes_come_out_as_they_went_in(sizes: list[int], view: int) -> None:
    buffers = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
    whole = b"".join(buffers)
    with connected("tcp://127.0.0.1:0", *identities()) as (dialled, accepted):
        assert isinstance(dialled, SealedConnection)
        sender = threading.Thread(target=dialled.send, args=(buffers,))
        sender.start()
        got = bytearray()
        room = memoryview(bytearray(view))
        while len(got) < len(whole):
            count = receive(accepted, room)
            assert count
            got += room[:count]
        sender.join(PATIENCE)
    assert got == whole


def test_what_could_not_be_sent_in_time_goes_on_where_it_was() -> None:
    large = bytes(range(256)) * (64 << 10)
    with connected("tcp://127.0.0.1:0", *identities()) as (dialled, accepted):
        unsent = dialled.send([large], (), time.monotonic())
        assert unsent is not None
        assert unsent.is_begun
        # A frame behind it finds no room, and none of it went: it may be dropped.
        rest = b"".join(unsent.rest)
        received = bytearray()
        reading = threading.Thread(
            target=lambda: received.extend(receive_exactly(accepted, len(large) + 4))
        )
        reading.start()
        assert dialled.send([rest]) is None
        assert dialled.send_small(b"next", math.inf) is None
        reading.join(PATIENCE)
    assert received == large + b"next"


def test_a_frame_that_was_dropped_before_it_began_leaves_no_gap(wire: Wire) -> None:
    socket_of(wire.a).setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    sent = 0
    while (unsent := wire.a.send_small(b"x" * 1000, time.monotonic())) is None:
        sent += 1
    while unsent is not None and unsent.is_begun:
        # A stream may take a part of a record; then that goes first.
        wire.to_b.sendall(wire.to_a.recv(1 << 20))
        unsent = wire.a.send(unsent.rest, (), time.monotonic())
        sent += unsent is None
    if unsent is not None:
        assert unsent.rest == [b"x" * 1000]
    wire.to_a.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while data := wire.to_a.recv(1 << 20):
            wire.to_b.sendall(data)
    assert wire.a.send_small(b"last", math.inf) is None
    wire.to_b.sendall(wire.overhear(4))
    assert receive_exactly(wire.b, 1000 * sent + 4)[-4:] == b"last"


def test_an_array_that_another_thread_changes_meanwhile_breaks_no_record(wire: Wire) -> None:
    array = bytearray(b"before")
    tag = wire.a._sending.tag

    def change_after(payload: bytes) -> bytes:
        made = tag(payload)
        array[:] = b"behind"
        return made

    wire.a._sending = Changing(change_after)  # type: ignore[assignment]
    assert wire.a.send([array]) is None
    wire.to_b.sendall(wire.overhear(6))
    assert hear(wire.b) == b"before"


class Changing:
    """A seal that lets another thread have its turn as soon as a tag was made."""

    number = 0

    def __init__(self, tag: Callable[[bytes], bytes]) -> None:
        self.tag = tag


def test_bytes_left_of_a_record_are_pending_and_no_part_of_one_is(wire: Wire) -> None:
    pending = wire.b.pending
    assert pending is not None
    first, second = say(wire, b"abcdef", b"ghi")
    wire.to_b.sendall(first + second[:-1])
    assert hear(wire.b, 2) == b"ab"
    assert pending() == 4
    assert hear(wire.b, 4) == b"cdef"
    assert pending() == 0
    wire.to_b.sendall(second[-1:])
    assert hear(wire.b) == b"ghi"
    wire.to_b.sendall(b"\xff" * 30)
    with pytest.raises(ProtocolViolation):
        hear(wire.b)
    # A read would fail at once: nobody is to wait for more.
    assert pending() > 0


def test_a_frame_of_which_a_part_is_left_in_the_connection_is_found_by_who_reads_next(
    wire: Wire,
) -> None:
    """Whoever gives up reading asks whether there is more: no poll would tell."""
    large, small = pack(CALL, 0, 1, 0, b"h" * 126_000, ())[0], pack(CALL, 0, 2, 0, b"", ())[0]
    last = pack(CALL, 0, 3, 0, b"i" * 5000, ())[0]
    stream = bytes(large) + bytes(small) + bytes(last)
    reader = FrameReader(wire.b, Spinning(0.0))

    def bring(start: int, end: int) -> None:
        wire.to_b.sendall(say(wire, stream[start:end])[0])

    bring(0, RECORD_BYTES)
    assert reader.read(time.monotonic()) is None
    bring(RECORD_BYTES, len(large) + 10)
    assert reader.read(time.monotonic()).ident == 1  # type: ignore[union-attr]
    assert not reader.has_frame()
    # The room behind those ten bytes is smaller than what comes now.
    bring(len(large) + 10, len(stream))
    assert reader.read(time.monotonic()).ident == 2  # type: ignore[union-attr]
    assert reader.has_frame()
    assert reader.read(time.monotonic()).ident == 3  # type: ignore[union-attr]
    assert not reader.has_frame()
