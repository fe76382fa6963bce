"""What one peer may have of a worker: calls at once, threads, bytes a second."""

import threading
import time

import numpy as np
import pytest
from tests.rpc import simulated
from tests.rpc.neighbours import eventually, neighbours

from telegrad.errors import Refused, UsageError
from telegrad.rpc.calls.future_group import wait_all
from telegrad.rpc.options import Options

MB = 1 << 20
GATE = threading.Event()
LOCK = threading.Lock()
NOW = {"a": 0, "c": 0}


@pytest.fixture(autouse=True)
def _forget():
    GATE.clear()
    NOW.update(a=0, c=0)
    yield
    GATE.set()


def occupy(frm):
    with LOCK:
        NOW[frm] += 1
    assert GATE.wait(20)
    return frm


def total(x):
    return float(x.sum())


def test_calls_of_a_peer_beyond_those_at_once_are_refused_and_others_are_not():
    with neighbours("a", "b", "c", options=Options(calls_of_peer=3)) as (a, b, c):
        calls = [a.rpc_async("b", simulated.wait_for_gate) for _ in range(3)]

        def served():
            # There is no path until the first has come.
            return len(getattr(b.peers.get("a").incoming, "serving", ()))

        assert eventually(lambda: served() == 3)
        with pytest.raises(Refused, match=r"serves 3 calls of 'a'.*Options.calls_of_peer"):
            a.rpc_sync("b", simulated.who)
        with pytest.raises(Refused, match=r"Options.calls_of_peer"):
            a.remote("b", simulated.who).to_here()
        with pytest.raises(Refused, match=r"Options.calls_of_peer"):
            a.rpc_sync("b", simulated.keep, ("key", [a.make_rref(3)]))
        assert eventually(lambda: a.references.counts()["given"] == 0)
        assert c.rpc_sync("b", simulated.who) == "b"
        c.rpc_sync("b", simulated.open_gate)
        assert wait_all(calls) == ["open"] * 3
        assert eventually(lambda: not served())
        assert a.rpc_sync("b", simulated.who) == "b"


def test_a_peer_has_so_many_threads_and_the_rest_of_its_calls_wait():
    with neighbours("a", "b", "c", options=Options(handlers=8, handlers_of_peer=2)) as (a, b, c):
        calls = [each.rpc_async("b", occupy, (each.name,)) for _ in range(5) for each in (a, c)]
        assert eventually(lambda: NOW == {"a": 2, "c": 2})
        assert eventually(lambda: sum(map(len, b.host.handlers.waiting.values())) == 6)
        assert NOW == {"a": 2, "c": 2}
        GATE.set()
        assert wait_all(calls) == ["a", "c"] * 5


@pytest.mark.parametrize("segments", [True, False])
def test_a_peer_that_sends_faster_than_it_may_is_slowed_down_and_not_lost(segments):
    options = Options(bytes_per_second_of_peer=MB, segments=segments, lost_after=4.0)
    began = time.monotonic()
    with neighbours("a", "b", "c", options=options) as (a, b, c):
        much = np.ones(6 * MB, np.uint8)
        assert a.rpc_sync("b", total, (much,)) == 6 * MB
        assert a.rpc_sync("b", simulated.who) == "b"
        # However long that took for other reasons, it took no less.
        assert time.monotonic() - began > 4.99, "six at one a second, but for the first second's"
        assert a.peers.get("b").lost is b.peers.get("a").lost is None
        assert c.rpc_sync("b", simulated.who) == "b"


def test_shutting_down_does_not_wait_for_a_peer_that_rests():
    options = Options(bytes_per_second_of_peer=MB, lost_after=600)
    with neighbours("a", "b", options=options) as (a, _):
        assert a.rpc_sync("b", total, (np.ones(60 * MB, np.uint8),)) == 60 * MB
        late = a.rpc_async("b", simulated.who)
    assert late.done()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"calls_of_peer": 0}, "expected calls_of_peer of at least 1, got 0"),
        ({"handlers_of_peer": 0}, "expected handlers_of_peer of at least 1, got 0"),
        (
            {"bytes_per_second_of_peer": 1000},
            "expected bytes_per_second_of_peer of at least 1048576, got 1000",
        ),
    ],
)
def test_a_quota_that_lets_nothing_through_is_refused(given, message):
    with pytest.raises(UsageError, match=message):
        Options(**given)
