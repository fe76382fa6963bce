"""Waiting for our futures as for those of the standard library."""

import concurrent.futures
import threading

import pytest
from tests.rpc.inside import has_callbacks

from telegrad.rpc.calls.future import Future


def test_wait_tells_those_that_are_done_from_those_that_are_not():
    early, late = Future(), Future()
    early.set_result(1)
    done, missing = concurrent.futures.wait([early, late], timeout=0.001)
    assert (done, missing) == ({early}, {late})
    assert not has_callbacks(late)
    late.set_result(2)
    assert concurrent.futures.wait([early, late]).done == {early, late}


def test_wait_returns_when_another_thread_settles_the_last_one():
    futures = [Future() for _ in range(3)]
    threading.Thread(target=lambda: [each.set_result(i) for i, each in enumerate(futures)]).start()
    done, _ = concurrent.futures.wait(futures)
    assert sorted(each.result() for each in done) == [0, 1, 2]


def test_wait_returns_at_the_first_exception():
    good, bad, open_ = Future(), Future(), Future()
    good.set_result(1)
    threading.Thread(target=bad.set_exception, args=(ValueError("no"),)).start()
    done, missing = concurrent.futures.wait(
        [good, bad, open_], return_when=concurrent.futures.FIRST_EXCEPTION
    )
    assert done == {good, bad}
    assert missing == {open_}
    with pytest.raises(ValueError, match="no"):
        bad.result()


def test_as_completed_gives_them_in_the_order_they_come():
    first, second, third = futures = [Future() for _ in range(3)]
    third.set_result(3)
    seen = []
    for each in concurrent.futures.as_completed(futures):
        seen.append(each)
        if each is third:
            second.set_result(2)
        elif each is second:
            first.set_result(1)
    assert seen == [third, second, first]
    assert not any(map(has_callbacks, futures))


def test_as_completed_takes_those_of_both_kinds():
    ours = Future()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(ours.set_result, 2)
        assert set(concurrent.futures.as_completed([ours, theirs])) == {ours, theirs}
