"""The monitor: where the system has no epoll, and what it learns late."""

import operator

import numpy as np
import pytest
from tests.rpc import simulated
from tests.rpc.inside import tidy_before_a_link_ends
from tests.rpc.neighbours import eventually, neighbours

from telegrad.errors import CallTimeout, WorkerLost
from telegrad.rpc.calls.future_group import wait_all
from telegrad.rpc.driver import ready_set


@pytest.fixture
def without_epoll(monkeypatch):
    monkeypatch.setattr(ready_set, "_EPOLL", False)


def test_calls_of_every_kind_work_without_epoll(without_epoll):
    with neighbours("a", "b", tcp=True) as (a, _):
        assert a.rpc_sync("b", simulated.bounce, ("a", 30)) == 30
        calls = [a.rpc_async("b", operator.neg, (number,)) for number in range(100)]
        assert wait_all(calls) == [-number for number in range(100)]
        call = a.rpc_async("b", np.negative, (np.ones(100_000),))
        assert eventually(call.done)
        assert a.remote("b", simulated.Counter, (1,)).rpc_sync().add(1) == 2
        late = a.rpc_async("b", simulated.never, timeout=0.1)
        assert eventually(late.done)
        with pytest.raises(CallTimeout):
            late.value()


def test_a_peer_that_leaves_is_noticed_without_epoll(without_epoll):
    with neighbours("a", "b") as (a, b):
        call = a.rpc_async("b", simulated.never)
        assert eventually(lambda: bool(b.peers.get("a").incoming))
        b.close()
        with pytest.raises(WorkerLost):
            call.wait(10)


def test_a_timer_that_is_added_just_as_the_monitor_has_looked_for_the_next_rouses_it():
    with neighbours("a", "b") as (a, _):
        assert a.rpc_sync("b", simulated.who) == "b"
        monitor, next_timer, late = a.host.monitor, a.next_timer, [True]
        rouse, roused = monitor.rouse, []

        def then_add_one():
            due = next_timer()
            if late:
                late.clear()
                a.host.rouse(a.host.now() + 100.0)
            return due

        monitor.rouse = lambda: (roused.append(True), rouse())
        a.next_timer = then_add_one
        rouse()
        assert eventually(lambda: not late)
        assert roused


def test_a_link_that_ends_just_as_another_thread_frees_those_that_have_is_freed_too():
    with neighbours("a", "b") as (a, _):
        assert a.rpc_sync("b", simulated.who) == "b"
        link = a.peers.get("b").outgoing
        tidy_before_a_link_ends(a.host)
        a.endpoint_lost(link, ConnectionResetError())
        assert eventually(lambda: link.fileno() == -1)
