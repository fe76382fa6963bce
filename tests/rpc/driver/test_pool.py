"""The threads of a worker, also where the system gives no more of them."""

import contextlib
import itertools
import sys
import threading

import numpy as np
import pytest
from tests.rpc.calls.test_interrupted_anywhere import Interrupt, traced
from tests.rpc.inside import pool_of, resting, seats
from tests.rpc.neighbours import eventually, neighbours

from telegrad.rpc.current import current_worker
from telegrad.rpc.driver.pool import Pool
from telegrad.rpc.options import Options


class NoThreads:
    """A system that gives no thread of a worker's pool while `refuses`."""

    def __init__(self, monkeypatch):
        self.refuses = False
        start = threading.Thread.start

        def start_or_fail(thread):
            if self.refuses and thread.name.startswith("telegrad-"):
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_or_fail)


def threads_of(name):
    return [each for each in threading.enumerate() if each.name.startswith(f"telegrad-{name}-")]


def test_a_thread_that_rests_takes_the_next_task_until_the_pool_closes():
    pool, ran = Pool("resting", linger=60.0), [threading.Event(), threading.Event()]
    for each in ran:
        assert pool.start(each.set)
        assert each.wait(10)
        assert eventually(lambda: pool.at_work() == 0)
    assert len(threads_of("resting")) == 1
    assert pool.close(10) == 0
    assert not pool.start(int)


def test_a_thread_that_has_rested_for_long_ends():
    pool, ran = Pool("brief", linger=0.0), threading.Event()
    pool.start(ran.set)
    assert ran.wait(10)
    assert eventually(lambda: not threads_of("brief"))


class LastMoment:
    """The bell of a resting thread: a task comes when it has rested for long, but does not know."""

    def __init__(self, bell, come):
        self.bell, self.come = bell, come
        self.release = bell.release

    def acquire(self, *timeout):
        if self.come is None:
            return self.bell.acquire(*timeout)
        come, self.come = self.come, None
        come()
        return False


def test_a_task_that_comes_at_the_last_moment_of_a_threads_rest_is_run():
    pool, ran = Pool("w"), threading.Event()

    def first():
        (seat,) = seats(pool)
        seat.bell = LastMoment(seat.bell, lambda: pool.start(ran.set))

    pool.start(first)
    assert ran.wait(10)
    assert pool.close(10) == 0


def test_a_pool_may_be_closed_by_a_thread_of_its_own():
    pool, left = Pool("w"), []
    pool.start(lambda: left.append(pool.close(10)))
    assert eventually(lambda: left == [1])


def test_a_task_without_a_thread_is_run_by_the_next_that_is_done(monkeypatch):
    system, pool = NoThreads(monkeypatch), Pool("w")
    gate, ran = threading.Event(), threading.Event()
    pool.start(gate.wait)
    system.refuses = True
    pool.start(ran.set)
    gate.set()
    assert ran.wait(10)
    assert pool.close(10) == 0


def test_a_task_that_fails_is_logged_and_its_thread_serves_the_next(caplog):
    pool, ran = Pool("w"), threading.Event()
    pool.start(sys.exit)
    assert eventually(lambda: pool.at_work() == 0)
    assert "a thread of worker w failed" in caplog.text
    pool.start(ran.set)
    assert ran.wait(10)
    assert pool.close(10) == 0


def test_a_task_without_any_thread_is_run_when_there_is_one_again(monkeypatch):
    system, pool = NoThreads(monkeypatch), Pool("w")
    ran = threading.Event()
    system.refuses = True
    pool.start(ran.set)
    pool.catch_up()
    assert not ran.is_set()
    system.refuses = False
    pool.catch_up()
    assert ran.wait(10)
    assert pool.close(10) == 0


def test_a_task_that_was_taken_is_run_though_the_pool_closes_meanwhile(monkeypatch):
    system, pool = NoThreads(monkeypatch), Pool("w")
    gate, ran = threading.Event(), threading.Event()
    pool.start(gate.wait)
    system.refuses = True
    assert pool.start(ran.set)
    left = []
    closing = threading.Thread(target=lambda: left.append(pool.close(10)))
    closing.start()
    assert eventually(lambda: not pool.start(int))
    gate.set()
    closing.join(10)
    assert ran.is_set()
    assert left == [0]


def test_a_task_that_was_taken_is_left_to_a_thread_that_outlives_the_pool(monkeypatch):
    system, pool = NoThreads(monkeypatch), Pool("w")
    gate, ran = threading.Event(), threading.Event()
    pool.start(gate.wait)
    system.refuses = True
    assert pool.start(ran.set)
    assert pool.close(0.0) == 1
    pool.catch_up()
    gate.set()
    assert ran.wait(10)


@traced
@pytest.mark.parametrize("has_resting", [False, True])
def test_a_task_whose_start_is_interrupted_anywhere_runs_once_and_leaves_no_thread(has_resting):
    for number in itertools.count(1):
        pool, ran, interrupt = Pool("w", linger=60.0), [], Interrupt(number)
        if has_resting:
            pool.start(int)
            assert eventually(lambda pool=pool: pool.at_work() == 0)
        has_started = False
        with contextlib.suppress(KeyboardInterrupt), interrupt:
            has_started = pool.start(lambda ran=ran: ran.append("once"))
        pool.catch_up()
        assert pool.close(10) == 0, interrupt.where
        assert ran == ["once"] or (not ran and not has_started), interrupt.where
        if interrupt.where is None:
            break
    assert number > 3


def test_a_task_whose_thread_was_interrupted_before_it_began_is_run_by_another(monkeypatch):
    pool, ran = Pool("w"), threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", press)
        with pytest.raises(KeyboardInterrupt):
            pool.start(ran.set)
    pool.catch_up()
    assert ran.wait(10)
    assert pool.close(10) == 0


def test_a_task_whose_thread_was_interrupted_as_it_began_is_run_once(monkeypatch):
    pool, ran, start = Pool("w"), [], threading.Thread.start

    def start_and_press(thread):
        start(thread)
        press()

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start_and_press)
        with pytest.raises(KeyboardInterrupt):
            pool.start(lambda: ran.append("once"))
    assert eventually(lambda: ran == ["once"])
    assert pool.close(10) == 0
    assert ran == ["once"]


def press(*_):
    raise KeyboardInterrupt


def ask_back(to, depth):
    return current_worker().rpc_sync(to, np.add, (depth, 1))


def test_workers_go_on_after_the_system_gave_no_threads_for_a_while(monkeypatch):
    system = NoThreads(monkeypatch)
    with neighbours("a", "b", options=Options(lost_after=3.0)) as (a, b):
        assert a.rpc_sync("b", ask_back, ("a", 1)) == 2
        assert eventually(lambda: not resting(a.host) and not resting(b.host))
        system.refuses = True
        calls = [a.rpc_async("b", ask_back, ("a", n)) for n in range(8)]
        assert eventually(
            lambda: any(pool_of(each.host).late for each in (a, b)) or calls[-1].done()
        )
        system.refuses = False
        assert [call.wait() for call in calls] == list(range(1, 9))
