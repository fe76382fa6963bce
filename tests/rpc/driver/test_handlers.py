"""Requests on threads of their own: how many side by side, in which order, what counts."""

import math
import threading
import time
from functools import partial

import pytest
from tests.rpc import simulated
from tests.rpc.inside import lock_of, places_of, replace_lock
from tests.rpc.neighbours import eventually, neighbours

from telegrad.errors import CallTimeout, UsageError
from telegrad.rpc.calls.future import Future
from telegrad.rpc.calls.future_group import wait_all
from telegrad.rpc.current import current_worker
from telegrad.rpc.driver import monitor
from telegrad.rpc.driver.handlers import Handlers, serving
from telegrad.rpc.options import Options

GATE = threading.Event()
LOCK = threading.Lock()
RAN: list[object] = []
NOW = {"running": 0, "most": 0}


@pytest.fixture(autouse=True)
def _forget():
    GATE.clear()
    RAN.clear()
    NOW.update(running=0, most=0)
    yield
    GATE.set()


def occupy(name):
    """Run for a while, as far as the worker can tell, and note how many others do."""
    with LOCK:
        NOW["running"] += 1
        NOW["most"] = max(NOW["most"], NOW["running"])
    assert GATE.wait(20)
    with LOCK:
        NOW["running"] -= 1
        RAN.append(name)


def take_a_moment(name):
    with LOCK:
        NOW["running"] += 1
        NOW["most"] = max(NOW["most"], NOW["running"])
    time.sleep(0.0015)
    with LOCK:
        NOW["running"] -= 1
    return threading.active_count()


class Threads:
    """Threads that run when they are told to."""

    def __init__(self):
        self.tasks = []

    def start(self, task):
        self.tasks.append(task)
        return True

    def run(self):
        while self.tasks:
            self.tasks.pop(0)()


def test_as_many_begin_as_may_run_side_by_side_and_the_others_follow_on_the_same_threads():
    threads = Threads()
    handlers = Handlers(threads.start, 4, lambda: False)
    for number in range(10):
        handlers.submit("ab"[number % 2], lambda number=number: RAN.append(number))
    assert len(threads.tasks) == handlers.running == 4
    assert not handlers.has_room_for("a")
    threads.run()
    assert sorted(RAN) == list(range(10))
    assert handlers.running == 0
    assert handlers.has_room_for("a")


def test_peers_take_turns_whoever_came_first_with_many():
    threads = Threads()
    handlers = Handlers(threads.start, 1, lambda: False)
    for name in ["a"] * 6 + ["b"] * 3 + ["c"]:
        handlers.submit(name, lambda name=name: RAN.append(name))
    threads.run()
    assert RAN == ["a", "a", "b", "c", "a", "b", "a", "b", "a", "a"]


def test_one_peer_leaves_a_quarter_of_them_to_others():
    threads = Threads()
    handlers = Handlers(threads.start, 8, lambda: False)
    for _ in range(20):
        handlers.submit("a", lambda: None)
    assert handlers.running == 6
    assert not handlers.has_room_for("a")
    assert handlers.has_room_for("b")
    for _ in range(20):
        handlers.submit("b", lambda: None)
    assert handlers.running == 8
    threads.run()
    assert handlers.running == 0


def test_the_request_of_the_leading_thread_counts():
    threads, is_led = Threads(), [1]
    handlers = Handlers(threads.start, 1, lambda: len(is_led))
    handlers.submit("a", lambda: RAN.append("a"))
    assert not threads.tasks
    is_led.clear()
    handlers.fill()
    threads.run()
    assert RAN == ["a"]


def test_one_that_waits_lets_another_begin_and_goes_on_whatever_the_bound():
    threads = Threads()
    handlers = Handlers(threads.start, 1, lambda: False)

    def wait():
        handlers.leave()
        threads.run()
        RAN.append("waited")
        handlers.enter()
        assert handlers.running == 1

    handlers.submit("a", wait)
    handlers.submit("a", lambda: RAN.append("other"))
    threads.run()
    assert RAN == ["other", "waited"]
    assert handlers.running == 0


def test_one_that_fails_its_thread_leaves_its_place_to_the_next():
    threads = Threads()
    handlers = Handlers(threads.start, 1, lambda: False)

    def fail():
        raise SystemExit

    handlers.submit("a", fail)
    handlers.submit("a", lambda: RAN.append("next"))
    with pytest.raises(SystemExit):
        threads.run()
    threads.run()
    assert RAN == ["next"]
    assert handlers.running == 0
    assert serving.counted_by is None


def test_all_that_leading_threads_run_counts():
    threads, led = Threads(), [1]
    handlers = Handlers(threads.start, 3, lambda: len(led))
    for number in range(4):
        handlers.submit("a", lambda number=number: RAN.append(number))
    assert handlers.running == 2
    assert handlers.has_room_for("b")
    # Another has begun a turn: one of the two has to wait.
    led.append(2)
    assert not handlers.has_room_for("b")
    led.clear()
    handlers.fill()
    assert handlers.running == 3


def test_one_that_ends_is_followed_by_none_while_leading_threads_run_as_many():
    threads, led = Threads(), []
    handlers = Handlers(threads.start, 1, lambda: len(led))

    def goes_on():
        # A leading thread's request has waited, and goes on.
        led.append(1)
        RAN.append("first")

    handlers.submit("a", goes_on)
    handlers.submit("a", lambda: RAN.append("next"))
    threads.run()
    assert RAN == ["first"]
    led.clear()
    handlers.fill()
    threads.run()
    assert RAN == ["first", "next"]
    assert handlers.running == 0


def test_one_that_stops_leading_while_others_count_is_not_overlooked():
    leads = [{1: "a"}]

    def led():
        # The monitor is quicker.
        handlers.take(leads[0], 1)
        return len(leads[0])

    handlers = Handlers(Threads().start, 1, led)
    assert not handlers.has_room_for("b")
    assert handlers.running == 1


def test_one_is_taken_from_its_leading_thread_only_where_it_can_be_counted_at_once():
    handlers, turns = Handlers(Threads().start, 1, lambda: 0), {1: "a"}
    counting, counted = threading.Event(), threading.Event()

    def count():
        with lock_of(handlers):
            counting.set()
            assert counted.wait(20)

    thread = threading.Thread(target=count)
    thread.start()
    assert counting.wait(20)
    assert handlers.take(turns, 1) is None
    counted.set()
    thread.join()
    assert turns == {1: "a"}
    assert handlers.take(turns, 1) == "a"
    assert handlers.take(turns, 1) is None
    assert handlers.running == 1


# Over sockets.


def hand_on():
    """Wait for a request that comes after this one."""
    outcome = Future()
    current_worker().host.serve(serving.path, partial(outcome.set_result, "ran"))
    return outcome.wait(20)


def test_one_that_waits_where_it_led_leaves_its_place_to_another(monkeypatch):
    monkeypatch.setattr(monitor, "_TICK", math.inf)
    # So that no ping brings it to light.
    with neighbours("a", "b", options=Options(handlers=1, lost_after=600)) as (a, b):
        assert a.rpc_sync("b", hand_on) == "ran"
        assert eventually(lambda: b.host.handlers.running == 0)


def leave_the_lead():
    """Do as one does that is about to wait for a peer that is slow to read."""
    current_worker().host.about_to_wait()


def test_one_that_leaves_the_lead_to_wait_for_a_slow_peer_counts_all_the_time(monkeypatch):
    monkeypatch.setattr(monitor, "_TICK", math.inf)
    with neighbours("a", "b", options=Options(handlers=1)) as (a, b):
        assert a.rpc_sync("b", simulated.who) == "b"
        lead, counted = b.host.leads[0], []
        offer = lead.offer
        lead.offer = lambda: (counted.append(b.host.handlers.running), offer())
        assert a.rpc_sync("b", leave_the_lead) is None
        assert counted[0] == 1
        assert eventually(lambda: b.host.handlers.running == 0)


class GoesFirst:
    """A lock that this thread takes the first time just after something else has happened."""

    def __init__(self, lock, first):
        self.lock = lock
        self.first = [first]
        self.thread = threading.get_ident()

    def acquire(self, *how):
        if self.first and threading.get_ident() == self.thread:
            self.first.pop()()
        return self.lock.acquire(*how)

    def release(self):
        self.lock.release()

    def __enter__(self):
        self.acquire()

    def __exit__(self, *error):
        self.release()


def test_one_that_ends_just_as_its_thread_loses_the_lead_keeps_no_place(monkeypatch):
    monkeypatch.setattr(monitor, "_TICK", math.inf)
    with neighbours("a", "b") as (a, b):
        call = a.rpc_async("b", occupy, (1,))
        lead, handlers = b.host.leads[0], b.host.handlers
        assert eventually(lambda: bool(NOW["running"] and lead.turn))

        def end():
            GATE.set()
            assert eventually(lambda: handlers.running < 0 or lead.is_idle())

        replace_lock(handlers, lambda lock: GoesFirst(lock, end))
        lead.take(next(iter(lead.turn)))
        call.wait()
        assert eventually(lambda: handlers.running == 0)
        assert places_of(handlers) == {}


def test_no_more_requests_run_side_by_side_than_the_option_says():
    with neighbours("a", "b", "c", options=Options(handlers=3)) as (a, b, c):
        calls = [worker.rpc_async("b", occupy, (n,)) for n in range(20) for worker in (a, c)]
        assert eventually(lambda: NOW["running"] == 3)
        assert eventually(lambda: sum(map(len, b.host.handlers.waiting.values())) == 37)
        # What needs no thread is still served.
        assert b.rpc_sync("a", simulated.who) == "a"
        GATE.set()
        wait_all(calls)
        assert NOW["most"] == 3
        assert len(RAN) == 40
        assert eventually(lambda: b.host.handlers.running == 0)


def test_requests_run_one_at_a_time_if_the_option_says_so():
    with neighbours("a", "b", "c", options=Options(handlers=1)) as (a, b, c):
        calls = [w.rpc_async("b", take_a_moment, (n,)) for n in range(50) for w in (a, c)]
        calls += [b.rpc_async("b", take_a_moment, (n,)) for n in range(20)]
        wait_all(calls)
        assert NOW["most"] == 1


def test_nesting_of_any_depth_works_with_one_handler_a_worker():
    with neighbours("a", "b", options=Options(handlers=1)) as (a, b):
        assert a.rpc_sync("b", simulated.bounce, ("a", 40)) == 40
        calls = [a.rpc_async("b", simulated.bounce, ("a", 5)) for _ in range(10)]
        assert wait_all(calls) == [5] * 10
        gates = [a.rpc_async("b", simulated.wait_for_gate) for _ in range(10)]
        a.rpc_sync("b", simulated.open_gate)
        assert wait_all(gates) == ["open"] * 10
        assert eventually(lambda: b.host.handlers.running == 0)
        assert a.host.handlers.running == 0


def test_very_many_slow_calls_at_once_take_no_more_threads_than_the_bound():
    with neighbours("a", "b", options=Options(handlers=16)) as (a, b):
        before = threading.active_count()
        calls = [a.rpc_async("b", take_a_moment, (n,)) for n in range(2000)]
        most = max(wait_all(calls))
        assert NOW["most"] <= 16
        assert most - before < 40
        assert b.peers.get("a").lost is None


def test_a_call_that_was_given_up_while_it_waited_for_its_turn_never_runs():
    with neighbours("a", "b", options=Options(handlers=1)) as (a, b):
        first = a.rpc_async("b", occupy, ("first",))
        assert eventually(lambda: NOW["running"] == 1)
        late = a.rpc_async("b", occupy, ("late",), timeout=0.05)
        with pytest.raises(CallTimeout):
            late.wait()
        link = b.peers.get("a").incoming
        assert eventually(lambda: bool(link.unwanted))
        GATE.set()
        first.wait()
        assert eventually(lambda: not b.host.handlers.waiting and not b.host.handlers.running)
        assert RAN == ["first"]
        assert not link.unwanted
        assert not link.serving


@pytest.mark.parametrize("handlers", [0, -1, 2.5, None])
def test_a_bound_that_is_no_number_of_requests_is_refused(handlers):
    with pytest.raises(UsageError, match=f"expected handlers of at least 1, got {handlers}"):
        Options(handlers=handlers)


@pytest.mark.processes
def test_a_worker_whose_handlers_are_all_blocked_is_not_taken_for_lost():
    from telegrad.distributed import LocalCluster, rpc

    with LocalCluster(["server"], options=Options(lost_after=3.0, handlers=200)):
        me = current_worker()
        lost = []
        me.on_worker_lost(lambda who, error: lost.append(str(error)))
        wait_all([rpc.rpc_async("server", time.sleep, (0.5,)) for _ in range(1600)])
        assert lost == []
