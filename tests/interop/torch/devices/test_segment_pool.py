"""Which segment is filled next, when another is made, and which go back."""

from dataclasses import dataclass

import pytest

from telegrad.interop.torch.devices.segment_pool import SMALLEST, SegmentPool, size_for

MB = 1 << 20


@dataclass(eq=False)
class Fake:
    peer: str
    size: int
    used_at: float = 0.0
    is_taken: bool = False
    has_mark: bool = False

    def is_held(self):
        return self.has_mark


def pool_of(*segments, most=1 << 30):
    pool = SegmentPool(most, given_up_after=60.0)
    for segment in segments:
        pool.add(segment)
    return pool


@pytest.mark.parametrize("nbytes", [1, 36, SMALLEST, SMALLEST + 1, 3 * MB, 17 * MB, (1 << 30) + 1])
def test_a_segment_is_large_enough_and_wastes_an_eighth_at_most(nbytes):
    size = size_for(nbytes)
    assert nbytes <= size
    assert size == SMALLEST or size <= nbytes + max(nbytes / 8, SMALLEST)
    assert size % SMALLEST == 0


def test_the_free_segment_that_was_used_the_longest_ago_is_taken():
    first, second = Fake("b", 2 * MB), Fake("b", 2 * MB)
    pool = pool_of(first, second)
    assert pool.take("b", 100, now=1.0) is first
    assert first.is_taken
    assert first.used_at == 1.0
    assert pool.take("b", 100, now=2.0) is second
    assert pool.take("b", 100, now=3.0) is None
    first.is_taken = second.is_taken = False
    assert pool.take("b", 100, now=4.0) is first


def test_neither_what_the_receiver_has_nor_another_ones_segment_is_taken():
    held, other, small = Fake("b", 2 * MB, has_mark=True), Fake("c", 2 * MB), Fake("b", 2 * MB)
    pool = pool_of(held, other, small)
    assert pool.take("b", 3 * MB, now=1.0) is None
    assert pool.take("b", 2 * MB, now=1.0) is small
    held.has_mark = False
    assert pool.take("b", 2 * MB, now=1.0) is held


def test_a_small_message_does_not_take_a_segment_that_is_much_too_large():
    large = Fake("b", 64 * MB)
    pool = pool_of(large)
    assert pool.take("b", 1 * MB, now=1.0) is None
    assert pool.take("b", 16 * MB, now=1.0) is large


def test_free_segments_go_first_where_a_new_one_would_pass_the_bound():
    free, held = Fake("b", 8 * MB), Fake("c", 4 * MB, has_mark=True)
    pool = pool_of(free, held, most=16 * MB)
    assert pool.plan(4 * MB) == (4 * MB, [])
    assert pool.plan(8 * MB) == (8 * MB, [free])
    assert pool.plan(14 * MB) is None
    assert pool.drop(free)
    assert not pool.drop(free)
    assert pool.held == 4 * MB


def test_what_nobody_used_for_a_while_is_idle_and_what_was_given_up_later_too():
    unused = Fake("b", 2 * MB, used_at=0.0)
    kept = Fake("b", 2 * MB, used_at=0.0, has_mark=True)
    filling = Fake("b", 2 * MB, used_at=0.0, is_taken=True)
    recent = Fake("b", 2 * MB, used_at=25.0)
    pool = pool_of(unused, kept, filling, recent)
    assert pool.idle(now=5.0) == []
    assert pool.idle(now=30.0) == [unused]
    assert pool.idle(now=61.0) == [unused, kept, recent]
    assert pool.of("b") == [unused, kept, filling, recent]
    assert len(pool) == 4
