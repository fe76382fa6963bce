"""A timeout that is none is a clear error, the same wherever one is taken."""

import math
import threading

import numpy as np
import pytest
from tests.rpc import simulated
from tests.rpc.inside import sleepers
from tests.rpc.neighbours import eventually, neighbours

from telegrad.distributed import LocalCluster, rpc
from telegrad.errors import CallTimeout, UsageError
from telegrad.rpc.calls.future import Future
from telegrad.rpc.calls.future_group import wait_all
from telegrad.rpc.options import Options
from telegrad.rpc.timeouts import seconds

NONE = ["1", math.nan, -5, -math.inf, -(10**400), [1], 1j, np.ones(2), object()]
EVENT = threading.Event()


def wait_for_event():
    return EVENT.wait()


@pytest.mark.parametrize("timeout", NONE, ids=lambda value: type(value).__name__)
def test_what_is_no_timeout_is_refused_everywhere(timeout):
    with neighbours("a", "b") as (a, _):
        here, there = a.make_rref({}), a.remote("b", dict)
        assert there.to_here() == {}
        settled = Future()
        settled.set_result(None)
        answered = a.rpc_async("b", simulated.who)
        answered.wait()
        EVENT.clear()
        unanswered = a.rpc_async("b", wait_for_event)
        for take in (
            lambda: a.rpc_sync("b", simulated.who, timeout=timeout),
            lambda: a.rpc_async("b", simulated.who, timeout=timeout),
            lambda: a.rpc_sync("a", simulated.who, timeout=timeout),
            lambda: a.remote("b", simulated.who, timeout=timeout),
            lambda: a.ask_service("b", "none", timeout=timeout),
            lambda: here.to_here(timeout),
            lambda: there.to_here(timeout),
            lambda: there.rpc_sync(timeout).keys(),
            lambda: there.rpc_async(timeout).keys(),
            lambda: there.remote(timeout).keys(),
            lambda: Future().wait(timeout),
            lambda: unanswered.wait(timeout),
            lambda: wait_all([Future()], timeout),
            lambda: settled.wait(timeout),
            lambda: answered.wait(timeout),
            lambda: rpc.shutdown(timeout=timeout),
        ):
            with pytest.raises(UsageError, match="expected a timeout of 0 or more seconds, got "):
                take()
        for name in ("rpc_timeout", "spin", "lost_after", "join_timeout"):
            with pytest.raises(UsageError, match=f"expected {name} of 0 or more seconds, got "):
                Options(**{name: timeout})
        with pytest.raises(UsageError, match="expected start_timeout of 0 or more seconds, got "):
            LocalCluster(["b"], start_timeout=timeout)
        EVENT.set()


def test_true_is_one_second():
    assert seconds(True) == 1.0
    options = Options(rpc_timeout=True, lost_after=True, join_timeout=True)
    assert options.rpc_timeout == options.lost_after == options.join_timeout == 1.0


@pytest.mark.parametrize("timeout", [np.float32(50), np.int64(50), 50, math.inf, 10**400])
def test_any_number_of_seconds_is_taken(timeout):
    assert type(seconds(timeout)) is float
    options = Options(rpc_timeout=timeout, lost_after=timeout, join_timeout=timeout)
    with neighbours("a", "b", options=options) as (a, _):
        assert a.rpc_sync("b", simulated.who, timeout=timeout) == "b"
        assert a.rpc_async("b", simulated.who).wait(timeout) == "b"
        assert a.remote("b", simulated.who, timeout=timeout).to_here(timeout) == "b"


def test_a_call_to_oneself_is_given_up_after_its_timeout():
    EVENT.clear()
    # Without the timeout it ends all the same, by itself.
    late = threading.Timer(5, EVENT.set)
    late.start()
    with neighbours("a") as (a,):
        with pytest.raises(CallTimeout, match="'a' did not answer"):
            a.rpc_sync("a", wait_for_event, timeout=0.05)
        assert not EVENT.is_set()
        EVENT.set()
        assert a.rpc_sync("a", wait_for_event, timeout=60)
    late.cancel()


# Whoever polls leaves nothing behind.


def poll(future):
    for _ in range(3):
        with pytest.raises(CallTimeout):
            future.wait(0.001)


def test_polling_a_future_leaves_no_locks_behind():
    future = Future()
    poll(future)
    assert sleepers(future) == 0


def test_polling_in_a_handler_leaves_no_locks_behind():
    with neighbours("a", "b") as (a, _):
        assert a.rpc_sync("b", sleepers_after_polling) == 0


def sleepers_after_polling():
    future = Future()
    poll(future)
    return sleepers(future)


def test_polling_a_call_while_another_thread_reads_leaves_no_locks_behind():
    with neighbours("a", "b") as (a, b):
        call = a.rpc_async("b", simulated.wait_for_gate)
        reader = threading.Thread(target=call.wait)
        reader.start()
        assert eventually(lambda: bool(a.peers.get("b").outgoing._reads))
        # The gate opens for those who wait at it.
        assert eventually(lambda: sleepers(simulated.GATE[0]) > 0)
        poll(call)
        left = sleepers(call)
        b.rpc_sync("b", simulated.open_gate)
        reader.join()
        assert left == 0
