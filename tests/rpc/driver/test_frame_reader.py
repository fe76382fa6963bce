"""Frames come out of the bytes however they are cut; requests without room are skipped."""

import itertools
import os
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rpc.connected import PATIENCE, connected, identities

from telegrad.errors import ProtocolViolation
from telegrad.rpc.driver.admission import Admission, Room
from telegrad.rpc.driver.frame_reader import FrameReader
from telegrad.rpc.driver.spin import Spinning
from telegrad.rpc.protocol.budget import ANNOUNCED_FROM, Budget
from telegrad.rpc.security.introduction import Limits
from telegrad.rpc.wire.frames import ANSWER, CALL, NOTICE, PLACED, PREFIX, REFUSED, SERVICE, pack


class Source:
    """A connection from which bytes come in the pieces that were asked for."""

    pending = None

    def __init__(self, data, pieces, limits=None):
        self.limits = limits or Limits()
        self._data = memoryview(data)
        self._pieces = iter(pieces)
        self._fd = os.open(os.devnull, os.O_RDONLY)

    def fileno(self):
        return self._fd

    def close(self):
        os.close(self._fd)

    def recv_into_nowait(self, view):
        size = min(len(view), len(self._data), next(self._pieces, 1 << 20))
        view[:size] = self._data[:size]
        self._data = self._data[size:]
        return size

    recv_into = recv_into_nowait


def read_all(source, count, admission=None):
    reader = FrameReader(source, Spinning(0.0), None, admission)
    return [reader.read(None) for _ in range(count)]


sizes = st.integers(0, 300_000)
frames = st.lists(
    st.tuples(
        st.sampled_from([CALL, SERVICE, ANSWER, NOTICE]),
        st.integers(0, 60_000),
        st.lists(sizes, max_size=3),
    ),
    min_size=1,
    max_size=6,
)
pieces = st.lists(st.integers(1, 100_000), max_size=30)


def encode(described):
    data, content = bytearray(), []
    for number, (kind, header, buffers) in enumerate(described, 1):
        head = bytes([number]) * header
        parts = [np.full(size, number, np.uint8).data for size in buffers]
        data += b"".join(pack(kind, 0, number, 0, head, parts))
        content.append((kind, number, head, [bytes(part) for part in parts]))
    return data, content


@settings(deadline=None, max_examples=60)
@given(described=frames, cuts=pieces)
def test_frames_come_out_as_they_went_in(described, cuts):
    data, content = encode(described)
    source = Source(data, cuts)
    try:
        came = read_all(source, len(content))
    finally:
        source.close()
    got = [(f.kind, f.ident, bytes(f.header), [bytes(b) for b in f.buffers]) for f in came]
    assert got == content


def fill_anteroom(admission):
    return admission.park((1 << 20) - 1) and admission.park(1 << 20)


def admission_of(budget, patience, has_anteroom=False):
    """Return that of a peer whose anteroom is full, unless it is to be empty."""
    admission = Admission(Room(budget, patience), "peer")
    assert has_anteroom or fill_anteroom(admission)
    return admission


@settings(deadline=None, max_examples=60)
@given(
    described=frames, cuts=pieces, most=st.integers(1 << 16, 1 << 20), has_anteroom=st.booleans()
)
def test_requests_without_room_are_skipped_or_wait_and_all_others_come(
    described, cuts, most, has_anteroom
):
    data, content = encode(described)
    budget = Budget(most, most)
    source = Source(data, cuts)
    try:
        came = read_all(source, len(content), admission_of(budget, 0.0, has_anteroom))
    finally:
        source.close()
    assert budget.held == sum(frame.cost for frame in came)
    waiting = [frame.waits for frame in came if frame.waits is not None]
    assert has_anteroom or not waiting
    large = [parked for _, parked in waiting if parked >= ANNOUNCED_FROM]
    assert len(large) <= 1
    assert sum(parked for _, parked in waiting) - sum(large) <= 1 << 20
    for frame, (kind, number, head, buffers) in zip(came, content):
        assert frame.ident == number
        if frame.kind == REFUSED:
            assert kind in (CALL, SERVICE)
            assert bytes(frame.header) == bytes((kind,))
        else:
            assert (frame.kind, bytes(frame.header)) == (kind, head)
            assert [bytes(buffer) for buffer in frame.buffers] == buffers
            if kind in (ANSWER, NOTICE):
                assert frame.cost == 0


def test_a_frame_that_was_put_back_comes_before_those_that_came_along_with_it():
    data, _ = encode([(ANSWER, size, []) for size in range(4)])
    source = Source(data, [])
    try:
        reader = FrameReader(source, Spinning(0.0))
        assert reader.read(None).ident == 1
        reader.put_back(reader.read(None))
        assert reader.may_have_more
        assert [reader.read(None).ident for _ in range(3)] == [2, 3, 4]
        assert not reader.has_frame()
    finally:
        source.close()


@pytest.mark.parametrize("cuts", [[], [32], [40, 70], [100]])
def test_a_frame_whose_reader_was_interrupted_just_as_it_came_comes_again(cuts):
    data, content = encode([(ANSWER, 0, []), (CALL, 8, []), (ANSWER, 3, [5, 6]), (NOTICE, 1, [])])
    source = Source(data, cuts)
    try:
        reader = FrameReader(source, Spinning(0.0))
        for _, number, head, buffers in content:
            frames = [reader.read(None)]
            assert reader.mend()
            frames.append(reader.read(None))
            reader.is_torn = False
            assert reader.mend()
            for frame in frames:
                assert (frame.ident, bytes(frame.header)) == (number, head)
                assert [bytes(buffer) for buffer in frame.buffers] == buffers
        assert not reader.has_frame()
    finally:
        source.close()


def test_a_read_that_ran_out_of_time_goes_on_where_it_was():
    data, _ = encode([(CALL, 10, [200_000]), (ANSWER, 5, [])])
    budget = Budget(1 << 20, 1 << 20)
    assert budget.admit("other", 1 << 20)
    source = Source(data, [])
    try:
        reader = FrameReader(source, Spinning(0.0), None, admission_of(budget, 60.0))
        assert reader.read(0.0) is None
        assert reader.read(0.0) is None
        budget.release("other", 1 << 20)
        frame = reader.read(0.0)
        assert (frame.kind, frame.ident) == (CALL, 1)
        assert frame.cost > 200_000
        assert reader.read(0.0).kind == ANSWER
    finally:
        source.close()


@pytest.mark.parametrize(
    ("header", "buffers", "cuts"),
    [
        (100, [], [10, 60]),
        (60_000, [100], [30_000]),
        (10, [400_000], [100, 200_000]),
        (200_000, [], [100_000]),
    ],
    ids=["small", "with a large header", "with a large buffer", "a large header alone"],
)
def test_a_frame_of_which_the_rest_is_late_is_read_when_that_has_come(header, buffers, cuts):
    data, [(kind, number, head, parts)] = encode([(ANSWER, header, buffers)])
    with connected("tcp://127.0.0.1:0", *identities()) as (sender, receiver):
        reader = FrameReader(receiver, Spinning(0.0))
        for start, end in itertools.pairwise([0, *cuts]):
            sender.send([data[start:end]])
            assert reader.read(time.monotonic()) is None
        sender.send([data[cuts[-1] :]])
        frame = reader.read(time.monotonic() + PATIENCE)
    assert (frame.kind, frame.ident, bytes(frame.header)) == (kind, number, head)
    assert [bytes(buffer) for buffer in frame.buffers] == parts


class NoMemory:
    """NumPy on a machine whose memory is used up."""

    uint8 = np.uint8

    @staticmethod
    def empty(*_):
        raise MemoryError


@pytest.mark.parametrize("kind", [CALL, REFUSED])
def test_each_piece_of_a_large_request_is_a_sign_of_life_also_where_it_is_skipped(kind):
    budget = Budget(1 << 20, 1 << 20)
    if kind == REFUSED:
        budget.admit("another", 1 << 20)
    data, _ = encode([(CALL, 0, [300_000])])
    source = Source(data, [100_000] * 3)
    reader = FrameReader(source, Spinning(0.0), None, admission_of(budget, 0.0))
    signs, receive = [], source.recv_into_nowait
    source.recv_into_nowait = lambda view: signs.append(reader.received) or receive(view)
    try:
        assert reader.read(None).kind == kind
    finally:
        source.close()
    assert [*signs, reader.received] == [0, 100_000, 200_000, 300_000, len(data)]


def test_a_request_there_is_no_memory_for_is_skipped_and_the_next_frame_is_found(monkeypatch):
    monkeypatch.setattr("telegrad.rpc.driver.frame_reader.np", NoMemory)
    data, _ = encode([(CALL, 10, [200_000]), (ANSWER, 5, [])])
    budget = Budget(1 << 20, 1 << 20)
    source = Source(data, [1000, 1000])
    try:
        refused, answer = read_all(source, 2, Admission(Room(budget, 60.0), "peer"))
    finally:
        source.close()
    assert (refused.kind, refused.ident, answer.kind) == (REFUSED, 1, ANSWER)
    assert b"no memory for a request of 200" in refused.header
    assert refused.cost == budget.held > 0


def test_a_request_there_is_no_memory_for_takes_no_place_in_the_anteroom(monkeypatch):
    monkeypatch.setattr("telegrad.rpc.driver.frame_reader.np", NoMemory)
    data, _ = encode([(CALL, 10, [200_000])] * 50)
    budget = Budget(1 << 20, 1 << 20)
    assert budget.admit("other", 1 << 20)
    source = Source(data, [])
    admission = admission_of(budget, 0.0, has_anteroom=True)
    try:
        came = read_all(source, 50, admission)
    finally:
        source.close()
    assert {frame.kind for frame in came} == {REFUSED}
    assert fill_anteroom(admission)
    assert budget.held == 1 << 20


def test_an_answer_there_is_no_memory_for_ends_the_link(monkeypatch):
    monkeypatch.setattr("telegrad.rpc.driver.frame_reader.np", NoMemory)
    data, _ = encode([(ANSWER, 10, [200_000])])
    source = Source(data, [])
    try:
        with pytest.raises(OSError, match="no memory for a message of 200"):
            read_all(source, 1)
    finally:
        source.close()


def test_shared_memory_that_was_not_agreed_on_is_refused():
    (data,) = pack(CALL, PLACED, 1, 0, b"x", [b"y"])
    source = Source(data, [])
    try:
        with pytest.raises(ProtocolViolation, match="not agreed on"):
            read_all(source, 1)
    finally:
        source.close()


def test_what_is_larger_than_the_limits_is_refused_before_memory_is_taken():
    # A pebibyte is announced; nobody has that, so taking memory for it would fail otherwise.
    source = Source(PREFIX.pack(ANSWER, 0, 1, 10, 1 << 50, 1, 0), [])
    try:
        with pytest.raises(ProtocolViolation, match="larger than the 1099511627776 agreed on"):
            read_all(source, 1)
    finally:
        source.close()


def held_after_the_end(data, ends_by):
    """Return what the budget holds when a link has ended while it read."""
    budget = Budget(1 << 20, 1 << 20)
    admission = Admission(Room(budget, 60.0), "peer")
    source = Source(data, [])
    try:
        with pytest.raises(ends_by):
            read_all(source, 1, admission)
    finally:
        source.close()
    assert budget.held > 0
    admission.close()
    return budget.held


def test_a_link_that_ends_while_a_request_is_skipped_for_want_of_memory_holds_nothing(monkeypatch):
    monkeypatch.setattr("telegrad.rpc.driver.frame_reader.np", NoMemory)
    data, _ = encode([(CALL, 10, [200_000])])
    assert held_after_the_end(data[:150_000], EOFError) == 0


def test_a_link_that_ends_by_shared_memory_it_can_not_have_holds_nothing():
    data = b"".join(pack(CALL, PLACED, 1, 0, b"x", [b"y" * 200_000]))
    assert held_after_the_end(data, ProtocolViolation) == 0


def test_frames_that_are_read_late_are_signs_of_life_one_by_one():
    data = b"".join(PREFIX.pack(NOTICE, 0, 0, 0, 0, number, 0) for number in range(3))
    reader = FrameReader(Source(data, []), Spinning(0.0))
    signs = [reader.signs_of_life()]
    for number in range(3):
        assert reader.read(None).ident == number
        signs.append(reader.signs_of_life())
    assert reader.received == len(data)
    assert signs == sorted(set(signs))
