"""Answers are read whether or not somebody waits for them."""

import threading

import pytest
from tests.rpc import simulated
from tests.rpc.inside import leader_of, sleepers
from tests.rpc.neighbours import eventually, neighbours

from telegrad.rpc.calls.future import Future
from telegrad.rpc.calls.future_group import collect_all
from telegrad.rpc.options import Options


@pytest.fixture(params=[0.0, 250e-6], ids=["sleeping", "spinning"])
def pair(request):
    with neighbours("a", "b", options=Options(spin=request.param)) as workers:
        yield workers


def test_an_answer_that_nobody_waits_for_is_read_all_the_same(pair):
    calls = [pair[0].rpc_async("b", simulated.who) for _ in range(20)]
    # Not `done()`: whoever asks that has it read.
    assert eventually(lambda: all(call.done() for call in calls))
    assert {call.value() for call in calls} == {"b"}


def test_asking_whether_an_answer_is_there_has_it_read(pair, monkeypatch):
    monkeypatch.setattr("telegrad.rpc.driver.monitor._LEFT_ALONE", 1000.0)
    call = pair[0].rpc_async("b", simulated.who)
    assert eventually(call.done)
    assert call.value() == "b"


def test_callbacks_run_although_nobody_waits(pair):
    came = threading.Event()
    pair[0].rpc_async("b", simulated.who).then(lambda done: came.set())
    assert came.wait(10)
    together = collect_all([pair[0].rpc_async("b", simulated.who) for _ in range(5)])
    assert eventually(together.done)


def test_a_monitor_that_dozes_is_roused_by_a_call_that_nobody_waits_for(monkeypatch):
    # So that neither a heartbeat nor a look now and then can find the answer instead.
    monkeypatch.setattr("telegrad.rpc.driver.monitor._LONGEST", 1000.0)
    with neighbours("a", "b", options=Options(lost_after=5000.0)) as (a, _):
        monitor = a.host.monitor
        for _ in range(5):
            assert eventually(lambda: monitor.dozes)
            call = a.rpc_async("b", simulated.who)
            assert eventually(lambda call=call: call.done())


def test_waiting_for_the_last_of_many_settles_those_that_came_along(pair):
    calls = [pair[0].rpc_async("b", simulated.who) for _ in range(50)]
    assert calls[-1].wait() == "b"
    assert [call.wait() for call in calls] == ["b"] * 50


def test_while_one_thread_waits_long_others_callbacks_run(pair):
    a, _ = pair
    waiting = threading.Thread(target=lambda: a.rpc_async("b", simulated.wait_for_gate).wait())
    waiting.start()
    came = threading.Event()
    a.rpc_async("b", simulated.who).add_done_callback(lambda done: came.set())
    assert came.wait(10)
    a.rpc_sync("b", simulated.open_gate)
    waiting.join(10)
    assert not waiting.is_alive()


def test_a_request_that_fails_its_thread_leaves_the_lead_to_the_thread_that_has_it_since(
    monkeypatch, caplog
):
    def fail(*_):
        raise SystemExit("not answered")

    gate: Future[str] = Future()
    monkeypatch.setattr(simulated, "GATE", [gate])
    with neighbours("a", "b") as (a, b):
        call = a.rpc_async("b", simulated.wait_for_gate)
        assert eventually(lambda: sleepers(gate) > 0)
        # Another thread reads and serves this, and reads on.
        assert a.rpc_sync("b", simulated.who) == "b"
        lead = b.host.leads[0]
        assert eventually(lead.is_idle)
        leader = leader_of(lead)
        monkeypatch.setattr(b.incoming, "answer_failure", fail)
        gate.set_exception(ValueError("it stays shut"))
        assert eventually(lambda: "a thread of worker b failed" in caplog.text)
        assert leader_of(lead) == leader
        assert b.host.handlers.running == 0
        assert not call.done()
        assert a.rpc_sync("b", simulated.who) == "b"


@pytest.mark.parametrize("what", ["link", "lead"])
def test_a_reader_whose_start_was_interrupted_is_started_when_next_asked_for(monkeypatch, what):
    def press(_):
        raise KeyboardInterrupt

    with neighbours("a", "b") as (a, _):
        a.rpc_sync("b", simulated.who)
        readers = {"link": a.peers.get("b").outgoing, "lead": a.host.leads[0]}
        started = []
        with monkeypatch.context() as patch:
            patch.setattr(a.host, "start", press)
            with pytest.raises(KeyboardInterrupt):
                readers[what].start_attending()
            patch.setattr(a.host, "start", started.append)
            readers[what].start_attending()
            readers[what].start_attending()
        assert len(started) == 1
