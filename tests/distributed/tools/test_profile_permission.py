"""Who may profile a strict worker: those whom it names, since a profile shows everybody's calls."""

import pytest
from tests.rpc.neighbours import neighbours

from telegrad.distributed.tools.event_log import COLLECT
from telegrad.distributed.tools.remote_profile import RemoteProfile
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.errors import Refused, UsageError
from telegrad.rpc.options import Options
from telegrad.rpc.wire.functions import expose


@expose
def greet(name):
    return f"hello {name}"


@pytest.fixture
def strict():
    """Three workers, of which the strict b and c let a profile them."""
    options = Options(strict=True, profiled_by=["a"])
    with neighbours("a", "b", "c", options=options) as workers:
        for worker in workers:
            attach_autograd(worker)
        yield workers


def test_a_member_without_permission_sees_no_calls_of_others(strict):
    a, b, c = strict
    with pytest.raises(Refused) as caught:
        RemoteProfile(c).start(["b"])
    message = str(caught.value)
    assert "worker 'b' is strict and does not let 'c' profile it" in message
    assert "rpc.Options(strict=True, profiled_by=['c'])" in message
    assert b.observer is None
    assert a.rpc_sync("b", greet, ("b",)) == "hello b"
    _, (events,) = c.ask_service("b", COLLECT, 0)
    assert bytes(events) == b"\x90"


def test_a_member_without_permission_blocks_nobodys_profile(strict):
    a, b, c = strict
    with pytest.raises(Refused):
        RemoteProfile(c).start(["b"])
    watch = RemoteProfile(a)
    watch.start(["b"])
    assert c.rpc_sync("b", greet, ("b",)) == "hello b"
    # Nor does it end one.
    c.ask_service("b", COLLECT, 0)
    with pytest.raises(Refused):
        RemoteProfile(c).start(["b"])
    names = [event.name for event in watch.collect()["b"]]
    assert "greet" in names
    assert b.observer is None


def test_where_one_of_several_refuses_none_is_profiled(strict):
    a, b, _ = strict
    with pytest.raises(Refused, match="worker 'a' is strict and does not let 'c'"):
        RemoteProfile(strict[2]).start(["a", "b"])
    assert a.observer is None
    assert b.observer is None


def test_a_worker_that_is_not_strict_is_profiled_by_any_member():
    with neighbours("a", "b") as (a, b):
        attach_autograd(a)
        attach_autograd(b)
        watch = RemoteProfile(a)
        watch.start(["b"])
        a.rpc_sync("b", greet, ("b",))
        assert "greet" in [event.name for event in watch.collect()["b"]]


def test_one_text_for_the_names_is_refused():
    with pytest.raises(UsageError, match=r"write profiled_by=\['ps'\]"):
        Options(strict=True, profiled_by="ps")
