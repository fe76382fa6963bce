"""The driver's own races: tiny switch interval, forced yields where they race, many threads."""

import operator
import os
import random
import sys
import threading

import pytest
from tests.rpc import simulated
from tests.rpc.inside import pause_where_threads_race
from tests.rpc.neighbours import neighbours

from telegrad.errors import NotInitialized, PeerError
from telegrad.rpc.calls.future_group import wait_all
from telegrad.rpc.options import Options

CALLS = int(os.environ.get("TELEGRAD_STRESS_CALLS", "100000"))
THREADS = 4


@pytest.fixture
def frantic(monkeypatch):
    """Switch threads after every microsecond, and often at the points where they race."""
    dice = random.Random(0)

    def pause():
        if dice.random() < 0.3:
            os.sched_yield()

    pause_where_threads_race(monkeypatch, pause)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def run_threads(work, arguments):
    failures = []

    def guarded(*args):
        try:
            work(*args)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=args, daemon=True) for args in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads), "a call hangs"
    if failures:
        raise failures[0]


@pytest.mark.parametrize("spin", [0.0, 250e-6])
def test_four_threads_a_side_lose_and_mix_up_nothing(frantic, spin):
    with neighbours("a", "b", options=Options(spin=spin, rpc_timeout=120)) as (a, b):
        each = CALLS // 2 // (2 * THREADS)

        def work(worker, to, base):
            number = 0
            while number < each:
                kind = number % 10
                if kind < 6:
                    assert worker.rpc_sync(to, operator.add, (base, number)) == base + number
                    number += 1
                elif kind < 9:
                    calls = [worker.rpc_async(to, operator.add, (base, n)) for n in range(20)]
                    assert wait_all(calls) == [base + n for n in range(20)]
                    number += 20
                else:
                    assert worker.rpc_sync(to, simulated.bounce, (worker.name, 4)) == 4
                    number += 5

        sides = [(a, "b"), (b, "a")]
        run_threads(work, [(w, to, n << 40) for w, to in sides for n in range(THREADS)])


@pytest.mark.parametrize("attempt", range(20))
def test_shutting_down_in_the_middle_of_calls_hangs_nobody(frantic, attempt):
    with neighbours("a", "b", options=Options(rpc_timeout=60)) as (a, b):
        started = threading.Barrier(5)

        def work(worker, to):
            started.wait()
            try:
                while True:
                    worker.rpc_sync(to, simulated.who)
            except (PeerError, NotInitialized):
                pass

        def close():
            started.wait()
            a.rpc_sync("b", simulated.who)
            b.close()

        closer = threading.Thread(target=close)
        closer.start()
        run_threads(work, [(a, "b"), (a, "b"), (b, "a"), (b, "a")])
        closer.join(30)
        assert not closer.is_alive()
