"""Shared segments: reused only when nothing lies on them, sealed, bounded, gone with a crash."""

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rpc.connected import PATIENCE

from telegrad.errors import ProtocolViolation
from telegrad.rpc.segments import SEGMENTS, SMALLEST_SEGMENT, Segment, SegmentMap, SegmentPool

pytestmark = pytest.mark.skipif(not SEGMENTS, reason="this system has no sealed memory files")

SIZE = SMALLEST_SEGMENT


@pytest.fixture
def pool() -> Iterator[SegmentPool]:
    made = SegmentPool()
    yield made
    made.forget("peer")


@pytest.fixture
def received() -> SegmentMap:
    return SegmentMap()


def take(pool: SegmentPool, nbytes: int = SIZE) -> Segment:
    segment = pool.take("peer", nbytes)
    assert segment is not None
    return segment


def hand_over(pool: SegmentPool, received: SegmentMap, segment: Segment) -> None:
    """Do what a frame with the segment does on both sides."""
    if segment.is_new:
        received.adopt("peer", segment.id, os.dup(segment.fd), segment.size)
        pool.handed_over(segment)


def test_what_the_sender_writes_is_mapped_not_copied(
    pool: SegmentPool, received: SegmentMap
) -> None:
    segment = take(pool, 1000)
    segment.view[:] = bytes(range(250)) * 4
    hand_over(pool, received, segment)
    array = np.frombuffer(received.view("peer", segment.id, 250, 500), np.uint8)
    assert array.tolist() == list(range(250)) * 2
    segment.view[250] = 99
    assert array[0] == 99
    array[1] = 98
    assert segment.view[251] == 98


def test_a_segment_is_released_only_when_the_last_view_of_the_array_is_gone(
    pool: SegmentPool, received: SegmentMap
) -> None:
    segment = take(pool)
    hand_over(pool, received, segment)
    array = np.frombuffer(received.view("peer", segment.id, 0, 800), np.float64)
    kept = array.reshape(10, 10)[2:, ::2].T.view(np.int64)
    raw = memoryview(kept)
    del array
    assert received.releases("peer") == []
    del kept
    assert received.releases("peer") == []
    del raw
    gc.collect()
    assert received.releases("peer") == [segment.id]
    assert received.releases("peer") == []


def test_several_arrays_on_one_segment_release_it_once(
    pool: SegmentPool, received: SegmentMap
) -> None:
    segment = take(pool)
    hand_over(pool, received, segment)
    first, second = received.views("peer", segment.id, [(0, 10), (64, 10)])
    del first
    assert received.releases("peer") == []
    del second
    assert received.releases("peer") == [segment.id]


def test_a_released_segment_is_used_again_without_its_descriptor(
    pool: SegmentPool, received: SegmentMap
) -> None:
    first = take(pool)
    assert first.is_new
    hand_over(pool, received, first)
    pool.release("peer", first.id)
    again = take(pool, SIZE // 2 + 1)
    assert again is first
    assert not again.is_new
    assert again.fd == -1
    assert len(again.view) == SIZE // 2 + 1
    assert take(pool) is not again, "a segment in use was given out again"


def test_a_segment_that_was_not_sent_keeps_its_descriptor(pool: SegmentPool) -> None:
    segment = take(pool)
    pool.give_back(segment)
    again = take(pool)
    assert again is segment
    assert again.is_new
    assert again.fd >= 0


def test_a_release_may_overtake_the_senders_own_note(pool: SegmentPool) -> None:
    segment = take(pool)
    pool.release("peer", segment.id)
    pool.handed_over(segment)
    assert not take(pool).is_new


def test_releasing_what_the_peer_does_not_hold_is_a_violation(pool: SegmentPool) -> None:
    segment = take(pool)
    pool.release("peer", segment.id)
    for peer, segment_id in (("peer", segment.id), ("other", segment.id), ("peer", 999)):
        with pytest.raises(ProtocolViolation, match="does not hold"):
            pool.release(peer, segment_id)


@pytest.mark.parametrize("nbytes", [1, SIZE, SIZE + 1, 3 * SIZE, 8 * SIZE])
def test_sizes_are_powers_of_two_that_hold_the_bytes(pool: SegmentPool, nbytes: int) -> None:
    segment = take(pool, nbytes)
    assert len(segment.view) == nbytes <= segment.size
    assert segment.size & (segment.size - 1) == 0
    assert segment.size < 2 * max(nbytes, SIZE)


def test_peers_dont_share_segments(pool: SegmentPool) -> None:
    segment = take(pool)
    pool.release("peer", segment.id)
    other = pool.take("other", SIZE)
    assert other is not segment
    pool.forget("other")


def test_free_segments_hold_no_more_memory_than_the_bound() -> None:
    pool = SegmentPool(most_pooled=3 * SIZE)
    segments = [take(pool) for _ in range(5)]
    # Descriptors of our own, to look at the files behind the segments.
    watched = [os.dup(segment.fd) for segment in segments]
    for segment in segments:
        segment.view[:] = b"x" * SIZE
        pool.handed_over(segment)
    for segment in segments:
        pool.release("peer", segment.id)
    assert pool.pooled_bytes == 3 * SIZE
    assert [os.fstat(fd).st_blocks * 512 for fd in watched] == [0, 0, SIZE, SIZE, SIZE]
    assert [take(pool) for _ in range(5)] == segments[::-1], "the warmest come first"
    assert pool.pooled_bytes == 0
    pool.forget("peer")
    for fd in watched:
        os.close(fd)


def test_an_emptied_segment_works_again_on_both_sides(received: SegmentMap) -> None:
    pool = SegmentPool(most_pooled=0)
    segment = take(pool, 4)
    segment.view[:] = b"once"
    hand_over(pool, received, segment)
    pool.release("peer", segment.id)
    again = take(pool, 5)
    assert again is segment
    again.view[:] = b"twice"
    assert bytes(received.view("peer", segment.id, 0, 5)) == b"twice"
    pool.forget("peer")


def test_without_room_there_is_no_segment_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = SegmentPool(most_segments=1)
    segment = take(pool)
    assert pool.take("peer", SIZE) is None
    pool.release("peer", segment.id)
    assert take(pool) is segment
    pool.forget("peer")

    def fail(*arguments: object) -> int:
        raise OSError("too many open files")

    monkeypatch.setattr(os, "memfd_create", fail)
    assert pool.take("peer", SIZE) is None
    assert len(pool) == 0


def test_a_forgotten_peers_segments_and_descriptors_go(received: SegmentMap) -> None:
    before = len(os.listdir("/proc/self/fd"))
    pool = SegmentPool()
    free, used, unsent = take(pool), take(pool), take(pool)
    for segment in (free, used):
        segment.view[:3] = b"abc"
        hand_over(pool, received, segment)
    pool.release("peer", free.id)
    array = np.frombuffer(received.view("peer", used.id, 0, 3), np.uint8)
    pool.forget("peer")
    received.forget("peer")
    assert len(pool) == pool.pooled_bytes == 0
    assert unsent.fd == -1
    del free, used, unsent, segment
    assert array.tobytes() == b"abc", "an array outlives the peer that sent it"
    del array
    assert received.releases("peer") == []
    assert len(os.listdir("/proc/self/fd")) == before


def memory_file(nbytes: int, seals: int) -> int:
    import fcntl

    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, nbytes)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def test_a_file_that_could_be_cut_short_is_refused(received: SegmentMap) -> None:
    import fcntl

    for seals in (0, fcntl.F_SEAL_GROW, fcntl.F_SEAL_SHRINK):
        with pytest.raises(ProtocolViolation, match="cut short"):
            received.adopt("peer", 1, memory_file(4096, seals), 4096)
    read_end, write_end = os.pipe()
    os.close(write_end)
    with pytest.raises(ProtocolViolation):
        received.adopt("peer", 1, read_end, 4096)


def test_a_plain_file_is_refused(received: SegmentMap, tmp_path: os.PathLike[str]) -> None:
    path = os.path.join(tmp_path, "file")
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 4096)
    with pytest.raises(ProtocolViolation, match="sealed"):
        received.adopt("peer", 1, fd, 4096)


def test_a_segment_of_another_size_than_said_is_refused_and_closed(
    pool: SegmentPool, received: SegmentMap
) -> None:
    segment = take(pool)
    before = len(os.listdir("/proc/self/fd"))
    for claimed in (segment.size + 1, segment.size - 1, 0, -1):
        with pytest.raises(ProtocolViolation, match="expected"):
            received.adopt("peer", segment.id, os.dup(segment.fd), claimed)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_sealed_segment_cant_be_cut_or_unsealed_by_its_sender(pool: SegmentPool) -> None:
    import fcntl

    segment = take(pool)
    for size in (0, 2 * segment.size):
        with pytest.raises(PermissionError):
            os.ftruncate(segment.fd, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(segment.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


def test_an_id_cant_be_adopted_twice_and_not_without_bound(pool: SegmentPool) -> None:
    received = SegmentMap(most_segments=2)
    for segment_id in (1, 1, 2, 3):
        fd = os.dup(take(pool).fd)
        if segment_id == 3 or segment_id in received._adopted.get("peer", {}):
            with pytest.raises(ProtocolViolation, match="one of 2 at most"):
                received.adopt("peer", segment_id, fd, SIZE)
        else:
            received.adopt("peer", segment_id, fd, SIZE)


@settings(deadline=None)
@given(offset=st.integers(-(2**63), 2**63), nbytes=st.integers(-(2**63), 2**63))
def test_a_view_lies_inside_the_segment_or_is_a_violation(offset: int, nbytes: int) -> None:
    pool, received = SegmentPool(), SegmentMap()
    segment = take(pool)
    hand_over(pool, received, segment)
    inside = offset >= 0 and nbytes >= 0 and offset + nbytes <= SIZE
    try:
        assert len(received.view("peer", segment.id, offset, nbytes)) == nbytes
        assert inside
    except ProtocolViolation:
        assert not inside
        assert received.releases("peer") == []
    pool.forget("peer")


def test_an_unknown_segment_is_a_violation(received: SegmentMap) -> None:
    with pytest.raises(ProtocolViolation, match="never sent"):
        received.view("peer", 5, 0, 1)


def test_threads_share_a_pool_and_a_map_without_mixing_data() -> None:
    pool, received = SegmentPool(most_pooled=4 * SIZE), SegmentMap()
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for turn in range(200):
                segment = take(pool, SIZE // 2)
                mark = (seed * 31 + turn) % 251
                np.frombuffer(segment.view, np.uint8)[:] = mark
                hand_over(pool, received, segment)
                array = np.frombuffer(received.view("peer", segment.id, 0, SIZE // 2), np.uint8)
                assert (array == mark).all()
                del array
                for segment_id in received.releases("peer"):
                    pool.release("peer", segment_id)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert errors == []
    assert len(pool) <= 8


@pytest.mark.processes
def test_arrays_outlive_a_sender_that_was_killed_and_nothing_is_left() -> None:
    source = """
import socket, sys
from telegrad.rpc.segments import SegmentPool
from telegrad.rpc.transport.descriptors import send_with_descriptors
segment = SegmentPool().take("peer", 1 << 20)
segment.view[:] = b"s" * (1 << 20)
send_with_descriptors(socket.socket(fileno=int(sys.argv[1])), b"x", [segment.fd])
sys.stdin.read()
"""
    from telegrad.rpc.transport.descriptors import receive_with_descriptors

    ours, theirs = socket.socketpair()
    child = subprocess.Popen(
        [sys.executable, "-c", source, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.PIPE,
    )
    with ours, theirs, child:
        ours.settimeout(PATIENCE)
        _, (fd,) = receive_with_descriptors(ours, 1)
        child.send_signal(signal.SIGKILL)
        child.wait()
        inode = os.fstat(fd).st_ino
        received = SegmentMap()
        received.adopt("peer", 1, fd, 1 << 20)
        array = np.frombuffer(received.view("peer", 1, 0, 1 << 20), np.uint8)
        received.forget("peer")
        assert (array == ord("s")).all()
        with open("/proc/self/maps") as maps:
            assert f" {inode} " in maps.read()
        del array
        with open("/proc/self/maps") as maps:
            assert f" {inode} " not in maps.read()
