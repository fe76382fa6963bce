"""A peer gave all paths up and opens a new one, before the end of an old one has come here."""

import threading

import pytest
from tests.rpc import simulated
from tests.rpc.driver.test_half_open import through_proxy
from tests.rpc.neighbours import eventually, neighbours

from telegrad.errors import WorkerLost
from telegrad.rpc.wire.frames import HELLO

entered = threading.Event()
may_end = threading.Event()


def linger() -> str:
    entered.set()
    assert may_end.wait(20)
    return "done"


@pytest.fixture(autouse=True)
def _fresh():
    entered.clear()
    may_end.clear()
    yield
    may_end.set()


def give_up(b, proxy):
    """Let b give up the path that a opened; the proxy holds back its end, so a does not know."""
    proxy.cut()
    path = b.peers.get("a").incoming
    b.endpoint_lost(path, ConnectionError("silence"))


@pytest.mark.parametrize("scheme", ["tcp", "tls"])
def test_the_late_end_of_the_old_path_leaves_the_new_one_alone(scheme, tmp_path):
    with through_proxy(scheme, tmp_path, lost_after=60.0) as (a, b, proxy):
        assert a.rpc_sync("b", simulated.who) == "b"
        old = a.peers.get("b").outgoing
        give_up(b, proxy)
        # b's own paths do not lead through the proxy.
        call = b.rpc_async("a", linger)
        assert entered.wait(20)
        proxy.heal()
        assert eventually(lambda: old.closed)
        may_end.set()
        assert call.wait() == "done"
        assert a.rpc_sync("b", simulated.who) == "b"


def test_an_end_that_comes_before_the_new_paths_greeting_leaves_it_alone(tmp_path):
    with through_proxy("tcp", tmp_path, lost_after=60.0) as (a, b, proxy):
        assert a.rpc_sync("b", simulated.who) == "b"
        old = a.peers.get("b").outgoing
        come, go_on = threading.Event(), threading.Event()
        receive = a.receive

        def hold_greeting(endpoint, frame):
            if frame.kind == HELLO:
                come.set()
                assert go_on.wait(20)
            return receive(endpoint, frame)

        a.receive = hold_greeting
        give_up(b, proxy)
        call = b.rpc_async("a", simulated.who)
        assert come.wait(20)
        proxy.heal()
        assert eventually(lambda: old.closed)
        go_on.set()
        assert call.wait() == "a"


def test_a_path_that_was_opened_before_the_loss_goes_with_the_others():
    with neighbours("a", "b") as (a, b):
        assert a.rpc_sync("b", simulated.who) == "b"
        call = b.rpc_async("a", linger)
        assert entered.wait(20)
        old = a.peers.get("b").outgoing
        a.endpoint_lost(old, ConnectionResetError("the connection was closed"))
        with pytest.raises(WorkerLost, match="worker 'a' was lost"):
            call.wait()
        may_end.set()
