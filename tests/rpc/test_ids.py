"""Ids: of one worker all differ, and those of a strict one tell nothing of each other."""

from itertools import pairwise

from tests.rpc.neighbours import neighbours

from telegrad.rpc.ids import id_source
from telegrad.rpc.names import WorkerInfo, maker_of
from telegrad.rpc.options import Options

ME = WorkerInfo("me", 5, 12345)


def taken(secret: bool, count: int = 20_000) -> list[int]:
    source = id_source(ME, secret=secret)
    return [source() for _ in range(count)]


def test_no_two_are_the_same_and_each_tells_its_maker() -> None:
    for secret in (False, True):
        found = taken(secret)
        assert len(set(found)) == len(found)
        assert {maker_of(number) for number in found} == {5}


def test_those_of_a_strict_worker_do_not_count_on() -> None:
    found = taken(secret=True)
    steps = [after - before for before, after in pairwise(found)]
    assert len(set(steps)) == len(steps)
    # As random numbers of 48 bits would be: each bit is set in about half of them.
    for bit in range(48):
        assert 0.47 < sum(number >> bit & 1 for number in found) / len(found) < 0.53
    assert not set(found) & set(taken(secret=True))


def test_a_strict_worker_has_such_ids() -> None:
    with neighbours("a", options=Options(strict=True)) as (a,):
        assert abs(a.next_id() - a.next_id()) > 1
    with neighbours("a") as (a,):
        assert abs(a.next_id() - a.next_id()) == 1
