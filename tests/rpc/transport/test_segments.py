"""Shared segments: reused only when nothing lies on them, sealed, bounded, gone with a crash."""

import gc
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rpc.connected import PATIENCE

from telegrad.errors import ProtocolViolation
from telegrad.rpc.transport.segments import (
    AT_ONCE,
    SEGMENTS,
    SMALLEST_SEGMENT,
    TURNS_UP_TO,
    Segment,
    SegmentMap,
    SegmentPool,
)

pytestmark = pytest.mark.skipif(not SEGMENTS, reason="this system has no sealed memory files")

SIZE = 2 * TURNS_UP_TO


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


def hand_over(received: SegmentMap, segment: Segment) -> None:
    """Do what a frame with the segment does on both sides."""
    if segment.is_new:
        received.adopt("peer", segment.id, os.dup(segment.fd), segment.size)
    segment.handed_over()


def use_up(received: SegmentMap, segment: Segment) -> None:
    """Do what a receiver does who looks at the bytes and forgets them."""
    received.view("peer", segment.id, len(segment.view))


def test_what_the_sender_writes_is_mapped_not_copied(
    pool: SegmentPool, received: SegmentMap
) -> None:
    segment = take(pool, 1000)
    segment.view[:] = bytes(range(250)) * 4
    hand_over(received, segment)
    array = np.frombuffer(received.view("peer", segment.id, 500), np.uint8)
    assert array.tolist() == list(range(250)) * 2
    segment.view[0] = 99
    assert array[0] == 99
    array[1] = 98
    assert segment.view[1] == 98


def test_a_large_segment_is_backed_and_filled_in_pieces_between_which_others_run(
    pool: SegmentPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call for all of it would keep the interpreter, and no sign of life would go to peers."""
    backed: list[tuple[int, int]] = []
    filled: list[tuple[int, bytes, int]] = []

    class Memory:
        def madvise(self, advice: int, start: int, nbytes: int) -> None:
            backed.append((start, nbytes))

    class View:
        def __setitem__(self, place: slice, piece: memoryview) -> None:
            filled.append((place.start, bytes(piece[:1]), len(piece)))

    segment: Any = take(pool)
    monkeypatch.setattr(segment, "_memory", Memory())
    monkeypatch.setattr(segment, "view", View())
    assert segment.populate(2 * AT_ONCE + 5000)
    assert backed[:3] == [(0, AT_ONCE), (AT_ONCE, AT_ONCE), (2 * AT_ONCE, 5000)]
    segment.fill(b"a" * AT_ONCE + b"b" * AT_ONCE + b"c" * 5000)
    assert filled == [(0, b"a", AT_ONCE), (AT_ONCE, b"b", AT_ONCE), (2 * AT_ONCE, b"c", 5000)]


def test_a_filled_segment_has_the_buffers_bytes(pool: SegmentPool) -> None:
    data = np.random.default_rng(0).bytes(AT_ONCE + 77)
    segment = take(pool, len(data))
    segment.fill(data)
    assert segment.view == data


def test_a_segment_is_free_only_when_the_last_view_of_the_array_is_gone(
    pool: SegmentPool, received: SegmentMap
) -> None:
    segment = take(pool)
    hand_over(received, segment)
    assert not segment.is_free(), "it is under way"
    array = np.frombuffer(received.view("peer", segment.id, 800), np.float64)
    kept = array.reshape(10, 10)[2:, ::2].T.view(np.int64)
    raw = memoryview(kept)
    del array
    assert not segment.is_free()
    del kept
    assert not segment.is_free()
    del raw
    gc.collect()
    assert segment.is_free()


def test_a_free_segment_is_used_again_without_its_descriptor(
    pool: SegmentPool, received: SegmentMap
) -> None:
    first = take(pool)
    assert first.is_new
    hand_over(received, first)
    use_up(received, first)
    again = take(pool, SIZE // 2 + 1)
    assert again is first
    assert not again.is_new
    assert again.fd == -1
    assert len(again.view) == SIZE // 2 + 1
    assert take(pool) is not again, "a segment in use was given out again"


def test_a_segment_that_was_not_sent_keeps_its_descriptor(pool: SegmentPool) -> None:
    segment = take(pool)
    segment.vacate()
    again = take(pool)
    assert again is segment
    assert again.is_new
    assert again.fd >= 0


def test_two_small_segments_take_turns_and_one_large_is_enough(pool: SegmentPool) -> None:
    for nbytes, count in ((1, 2), (TURNS_UP_TO, 2), (TURNS_UP_TO + 1, 1)):
        taken = []
        for _ in range(6):
            taken.append(take(pool, nbytes))
            taken[-1].vacate()
        assert len({*taken}) == count
        assert taken[:count] * (6 // count) == taken
        pool.forget("peer")


def test_the_receiver_may_be_done_before_the_sender_knows_that_it_has_sent(
    pool: SegmentPool, received: SegmentMap
) -> None:
    segment = take(pool)
    received.adopt("peer", segment.id, os.dup(segment.fd), segment.size)
    use_up(received, segment)
    assert take(pool) is not segment, "its descriptor would be sent twice"
    segment.handed_over()
    again = take(pool)
    assert again is segment
    assert not again.is_new


def test_those_that_the_receiver_keeps_are_not_looked_through_for_each_message(
    pool: SegmentPool, received: SegmentMap, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [take(pool) for _ in range(50)]
    for segment in kept:
        segment.handed_over()
    for _ in range(2):
        hand_over(received, take(pool))
    looks: list[Segment] = []

    def is_free(segment: Segment) -> bool:
        looks.append(segment)
        return segment not in kept

    monkeypatch.setattr(Segment, "is_free", is_free)
    taken = {take(pool) for _ in range(20)}
    assert len(taken) == 2
    assert taken.isdisjoint(kept)
    assert len(looks) == 20


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_what_was_received_before_a_fork_never_goes_back(
    pool: SegmentPool, received: SegmentMap
) -> None:
    segment = take(pool)
    hand_over(received, segment)
    array = received.view("peer", segment.id, 10)
    child = os.fork()
    if not child:
        del array
        os._exit(1 if segment.is_free() else 0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, "the child gave back what its parent uses"
    del array
    assert not segment.is_free(), "the parent gave back what a child may use"
    other = take(pool)
    hand_over(received, other)
    use_up(received, other)
    assert other.is_free(), "what came after the fork goes back"


@pytest.mark.processes
def test_what_was_received_while_a_fork_was_prepared_never_goes_back_either() -> None:
    source = """
import os
arrays = []
os.register_at_fork(before=lambda: arrays.append(received.view("peer", segment.id, 10)))
# Whoever comes later prepares first.
from telegrad.rpc.transport.segments import SegmentMap, SegmentPool
pool, received = SegmentPool(), SegmentMap()
segment = pool.take("peer", 1 << 20)
received.adopt("peer", segment.id, os.dup(segment.fd), segment.size)
segment.handed_over()
child = os.fork()
arrays.clear()
if not child:
    os._exit(1 if segment.is_free() else 0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, "the child gave it back"
assert not segment.is_free(), "the parent gave it back"
"""
    subprocess.run([sys.executable, "-c", source], check=True, timeout=PATIENCE)


@pytest.mark.parametrize(
    "nbytes", [n * SMALLEST_SEGMENT + d for n in (1, 3, 8) for d in (-1, 0, 1)]
)
def test_sizes_are_powers_of_two_that_hold_the_bytes(pool: SegmentPool, nbytes: int) -> None:
    segment = take(pool, nbytes)
    assert len(segment.view) == nbytes <= segment.size
    assert segment.size & (segment.size - 1) == 0
    assert segment.size < 2 * max(nbytes, SMALLEST_SEGMENT)


def test_peers_dont_share_segments(pool: SegmentPool) -> None:
    segment = take(pool)
    segment.vacate()
    other = pool.take("other", SIZE)
    assert other is not segment
    pool.forget("other")


def pooled_bytes(pool: SegmentPool) -> int:
    """How much memory free segments hold."""
    return sum(segment.resident for segment in pool.free())


def test_free_segments_hold_no_more_memory_than_the_bound() -> None:
    pool = SegmentPool(most_pooled=3 * SIZE)
    segments = [take(pool) for _ in range(5)]
    # Descriptors of our own, to look at the files behind the segments.
    watched = [os.dup(segment.fd) for segment in segments]
    for segment in segments:
        segment.view[:] = b"x" * SIZE
    pool.trim()
    assert pooled_bytes(pool) == 0, "they are in use"
    for segment in segments:
        segment.vacate()
    assert pooled_bytes(pool) == 5 * SIZE
    pool.trim()
    assert pooled_bytes(pool) == 3 * SIZE
    held = [os.fstat(fd).st_blocks * 512 for fd in watched]
    assert max(held[:2]) <= mmap.PAGESIZE, "but for the mark, those used the longest ago hold none"
    assert min(held[2:]) >= SIZE
    assert {take(pool) for _ in range(3)} == {*segments[2:]}, "the warmest come first"
    pool.forget("peer")
    for fd in watched:
        os.close(fd)


def test_an_emptied_segment_works_again_on_both_sides(received: SegmentMap) -> None:
    pool = SegmentPool(most_pooled=0)
    segment = take(pool)
    segment.view[:4] = b"once"
    hand_over(received, segment)
    use_up(received, segment)
    pool.trim()
    assert bytes(segment.view[:4]) == bytes(4)
    again = take(pool)
    assert again is segment
    again.view[:5] = b"twice"
    assert bytes(received.view("peer", segment.id, 5)) == b"twice"
    pool.forget("peer")


def test_without_room_there_is_no_segment_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = SegmentPool(most_segments=1)
    segment = take(pool)
    assert pool.take("peer", SIZE) is None
    segment.vacate()
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
        hand_over(received, segment)
    use_up(received, free)
    array = np.frombuffer(received.view("peer", used.id, 3), np.uint8)
    pool.forget("peer")
    received.forget("peer")
    assert len(pool) == pooled_bytes(pool) == 0
    assert unsent.fd == -1
    del free, used, unsent, segment
    assert array.tobytes() == b"abc", "an array outlives the peer that sent it"
    del array
    assert len(os.listdir("/proc/self/fd")) == before


def test_segments_that_are_kept_on_both_sides_take_no_descriptor(
    pool: SegmentPool, received: SegmentMap
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    kept = []
    for number in range(20):
        segment = take(pool, SMALLEST_SEGMENT)
        segment.view[:1] = bytes([number])
        hand_over(received, segment)
        kept.append(received.view("peer", segment.id, SMALLEST_SEGMENT))
    assert len(pool) == 20
    assert [view[0] for view in kept] == list(range(20))
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
            received.adopt("peer", 1, memory_file(4096 + mmap.PAGESIZE, seals), 4096)
    read_end, write_end = os.pipe()
    os.close(write_end)
    with pytest.raises(ProtocolViolation):
        received.adopt("peer", 1, read_end, 4096)


def test_a_plain_file_is_refused(received: SegmentMap, tmp_path: os.PathLike[str]) -> None:
    path = os.path.join(tmp_path, "file")
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 4096 + mmap.PAGESIZE)
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
    for segment_id, fits in ((1, True), (1, False), (2, True), (3, False)):
        fd = os.dup(take(pool).fd)
        if not fits:
            with pytest.raises(ProtocolViolation, match="one of 2 at most"):
                received.adopt("peer", segment_id, fd, SIZE)
        else:
            received.adopt("peer", segment_id, fd, SIZE)


@settings(deadline=None)
@given(nbytes=st.integers(0, 2**64 - 1) | st.integers(SIZE - 1, SIZE + 2))
def test_a_view_lies_inside_the_segment_or_is_a_violation(nbytes: int) -> None:
    pool, received = SegmentPool(), SegmentMap()
    segment = take(pool)
    hand_over(received, segment)
    try:
        assert len(received.view("peer", segment.id, nbytes)) == nbytes <= SIZE
    except ProtocolViolation:
        assert nbytes > SIZE
    pool.forget("peer")


def test_an_unknown_segment_is_a_violation(received: SegmentMap) -> None:
    with pytest.raises(ProtocolViolation, match="never sent"):
        received.view("peer", 5, 1)


def test_threads_share_a_pool_and_a_map_without_mixing_data() -> None:
    pool, received = SegmentPool(most_pooled=4 * SIZE), SegmentMap()
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for turn in range(200):
                segment = take(pool, SIZE // 2)
                mark = (seed * 31 + turn) % 251
                np.frombuffer(segment.view, np.uint8)[:] = mark
                hand_over(received, segment)
                array = np.frombuffer(received.view("peer", segment.id, SIZE // 2), np.uint8)
                assert (array == mark).all()
                del array
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
from telegrad.rpc.transport.segments import SegmentPool
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
        array = np.frombuffer(received.view("peer", 1, 1 << 20), np.uint8)
        received.forget("peer")
        assert (array == ord("s")).all()
        with open("/proc/self/maps") as maps:
            assert f" {inode} " in maps.read()
        del array
        with open("/proc/self/maps") as maps:
            assert f" {inode} " not in maps.read()


def test_pages_that_nobody_has_used_for_a_while_go_back_and_come_again() -> None:
    now = [0.0]
    pool = SegmentPool(idle_after=10.0, clock=lambda: now[0])
    first, second = take(pool), take(pool)
    for at, segment in ((0.0, first), (6.0, second)):
        now[0] = at
        segment.vacate()
        assert pool.take("peer", SIZE) is segment
        segment.view[:] = b"x" * SIZE
        segment.vacate()
    now[0] = 9.0
    pool.trim()
    assert (first.resident, second.resident) == (SIZE, SIZE)
    now[0] = 12.0
    pool.trim()
    assert (first.resident, second.resident) == (0, SIZE)
    now[0] = 30.0
    pool.trim()
    assert second.resident == 0
    again = take(pool)
    assert bytes(again.view[:4]) == b"\0\0\0\0"
    assert again.resident == SIZE
    pool.forget("peer")
