"""Deadlines rest while a handler is at a breakpoint, on every worker, and then go on."""

import pytest
from tests.rpc import simulated
from tests.rpc.neighbours import eventually, neighbours

from telegrad.errors import CallTimeout, WorkerLost
from telegrad.rpc.options import Options
from telegrad.testing.simulation import Simulation


def three(seed=0, **options):
    return Simulation(["a", "b", "c"], seed=seed, options=Options(lost_after=1.0, **options))


def begin_call(simulation, timeout):
    """Return a call of a's that b never answers."""
    a = simulation.worker("a")
    return simulation.run("a", lambda: a.rpc_async("b", simulated.never, timeout=timeout))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("stopped", ["a", "b", "c"])
def test_a_late_call_stays_open_while_any_worker_is_at_a_breakpoint(seed, stopped):
    with three(seed) as simulation:
        call = begin_call(simulation, 5.0)
        simulation.settle(2.0)
        simulation.run(stopped, simulation.worker(stopped).rest.begin)
        simulation.settle(60.0)
        assert not call.done()
        simulation.run(stopped, simulation.worker(stopped).rest.end)
        simulation.settle(2.0)
        assert not call.done(), "it had three seconds left"
        simulation.settle(3.0)
        assert call.done()
        with pytest.raises(CallTimeout):
            call.wait()


def test_a_thread_that_waits_for_its_call_waits_on():
    with three() as simulation:
        a, b = simulation.worker("a"), simulation.worker("b")
        simulation.run("b", b.rest.begin)
        simulation.settle(1.0)

        def ask():
            with pytest.raises(CallTimeout):
                a.rpc_sync("b", simulated.never, timeout=1.0)
            return simulation.now

        def go_on():
            simulation.sleep(30.0)
            b.rest.end()

        began = simulation.now
        ended = simulation.run_all({"a": ask, "b": go_on})["a"]
        assert ended > began + 30.0


def test_two_breakpoints_at_once_end_with_the_second():
    with three() as simulation:
        call = begin_call(simulation, 2.0)
        for name in ("b", "c"):
            simulation.run(name, simulation.worker(name).rest.begin)
        simulation.settle(10.0)
        simulation.run("b", simulation.worker("b").rest.end)
        simulation.settle(10.0)
        assert not call.done()
        simulation.run("c", simulation.worker("c").rest.end)
        simulation.settle(10.0)
        assert call.done()


def test_a_worker_that_is_lost_at_a_breakpoint_rests_no_more():
    with three() as simulation:
        call = begin_call(simulation, 2.0)
        simulation.run("c", simulation.worker("c").rest.begin)
        simulation.settle(10.0)
        assert not call.done()
        simulation.crash("c")
        simulation.settle(30.0)
        assert call.done()


def test_the_worker_at_the_breakpoint_itself_is_still_looked_after():
    with three() as simulation:
        call = begin_call(simulation, 2.0)
        simulation.run("b", simulation.worker("b").rest.begin)
        simulation.settle(10.0)
        simulation.crash("b")
        simulation.settle(30.0)
        with pytest.raises(WorkerLost):
            call.wait()


def test_a_strict_worker_goes_by_its_own_breakpoints_alone():
    with three(strict=True) as simulation:
        call = simulation.run(
            "a",
            lambda: simulation.worker("a").rpc_async("b", simulated.shown, ([1],), timeout=1e-9),
        )
        simulation.run("c", simulation.worker("c").rest.begin)
        simulation.settle(10.0)
        assert call.done()
        assert not simulation.worker("a").rest.is_on
        assert simulation.worker("c").rest.is_on


def test_calls_that_are_answered_at_rest_are_answered():
    with neighbours("a", "b") as (a, b):
        a.rest.begin()
        assert eventually(lambda: b.rest.is_on)
        assert a.rpc_sync("b", simulated.who, timeout=0.1) == "b"
        a.rest.end()
        assert eventually(lambda: not b.rest.is_on)


def test_over_sockets_a_late_call_waits_on_and_fails_afterwards():
    with neighbours("a", "b") as (a, b):
        assert a.rpc_sync("b", simulated.who) == "b"
        b.rest.begin()
        assert eventually(lambda: a.rest.is_on)
        call = a.rpc_async("b", simulated.never, timeout=0.2)
        assert eventually(lambda: call.deadline > a.host.now() + 0.3)
        assert not call.done()
        b.rest.end()
        with pytest.raises(CallTimeout):
            call.wait()
