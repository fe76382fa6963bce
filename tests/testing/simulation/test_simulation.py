"""The simulated network: one seed, one run; every fault; nothing hangs and nothing runs twice."""

import random
from functools import partial

import numpy as np
import pytest
from tests.interpreter import settle
from tests.rpc import simulated

from telegrad.errors import CallTimeout, PeerError, UnknownWorker, UsageError, WorkerLost
from telegrad.rpc.options import Options
from telegrad.rpc.protocol.session import Phase
from telegrad.testing.simulation import Faults, Simulation

BAD = Faults(lag=0.01, breaks=0.005)
TEN = [f"w{number}" for number in range(10)]


def ten_workers(seed, faults, calls=3):
    """Everyone calls three others, who call back; return what they saw, and the trace."""
    with Simulation(TEN, seed=seed, faults=faults) as simulation:

        def program(index):
            def run():
                worker, seen = simulation.worker(TEN[index]), []
                for step in range(calls):
                    to = TEN[(index + step + 1) % 10]
                    try:
                        seen.append(
                            worker.rpc_sync(to, simulated.bounce, (worker.name, 2), timeout=5)
                        )
                    except PeerError as error:
                        seen.append(type(error).__name__)
                return seen

            return run

        results = simulation.run_all({name: program(i) for i, name in enumerate(TEN)})
        return results, "\n".join(simulation.trace)


def test_the_same_seed_gives_the_same_trace_byte_for_byte():
    for seed in range(5):
        assert ten_workers(seed, BAD) == ten_workers(seed, BAD)


def test_different_seeds_give_different_traces():
    assert ten_workers(1, BAD)[1] != ten_workers(2, BAD)[1]


def test_without_faults_every_call_is_answered():
    results, _ = ten_workers(3, Faults())
    assert all(seen == [2, 2, 2] for seen in results.values())


@pytest.mark.parametrize("block", range(4))
def test_over_bad_networks_every_call_ends_and_most_are_answered(block):
    answered = 0
    for seed in range(50 * block, 50 * block + 50):
        results, _ = ten_workers(seed, BAD)
        for seen in results.values():
            assert set(seen) <= {2, "WorkerLost"}
            answered += seen.count(2)
    assert answered > 50 * 30 * 0.5


def test_a_call_at_which_the_connection_breaks_is_lost_on_both_sides_and_not_repeated():
    simulated.RUNS.clear()
    with Simulation(["a", "b"], seed=1) as simulation:
        a, b = simulation.worker("a"), simulation.worker("b")
        simulation.run("a", lambda: a.rpc_sync("b", simulated.who))
        simulation.faults = Faults(breaks=1.0)
        with pytest.raises(WorkerLost, match="worker 'b' was lost"):
            simulation.run("a", lambda: a.rpc_sync("b", simulated.count, ("x",)))
        simulation.faults = Faults()
        simulation.settle(1)
        assert b.peers.get("a").phase is Phase.LOST
        assert simulated.RUNS == {}
        assert simulation.run("a", lambda: a.rpc_sync("b", simulated.count, ("x",))) == 1


def test_what_is_sent_while_the_network_is_cut_comes_when_it_is_whole_again_in_order():
    simulated.RUNS.clear()
    with Simulation(["a", "b"], seed=1, options=Options(lost_after=100)) as simulation:
        a = simulation.worker("a")
        simulation.run("a", lambda: a.rpc_sync("b", simulated.who))
        simulation.cut("a", "b")
        simulation.at(simulation.now + 5, None, "heal", lambda: simulation.heal("a", "b"))

        def call():
            calls = [a.rpc_async("b", simulated.count, ("x",)) for _ in range(3)]
            return [each.wait() for each in calls]

        assert simulation.run("a", call) == [1, 2, 3]
        assert simulation.now > 5


def test_requests_of_one_connection_come_in_order_and_may_begin_in_another():
    orders = set()
    for seed in range(20):
        ran = []
        with Simulation(["a", "b"], seed=seed, faults=Faults(lag=1.0)) as simulation:
            a, b = simulation.worker("a"), simulation.worker("b")
            b.register_service("late", lambda request, ran=ran: ran.append(request.header))
            simulation.run("a", lambda a=a: [a.notify_service("b", "late", n) for n in range(3)])
            simulation.settle(5)
        orders.add(tuple(ran))
    assert len(orders) == 6


def test_a_cut_network_is_found_by_heartbeat_within_the_configured_time():
    with Simulation(["a", "b"], seed=1, options=Options(lost_after=10)) as simulation:
        a = simulation.worker("a")
        simulation.run("a", lambda: a.rpc_sync("b", simulated.who))
        simulation.cut("a", "b")
        began = simulation.now
        with pytest.raises(WorkerLost, match=r"'b' was lost: nothing was heard for"):
            simulation.run("a", lambda: a.rpc_sync("b", simulated.who, timeout=60))
        assert simulation.now - began <= 12.1
        simulation.heal("a", "b")
        simulation.settle(20)
        assert simulation.run("a", lambda: a.rpc_sync("b", simulated.who)) == "b"


def test_a_paused_worker_goes_on_if_it_wakes_in_time_and_is_lost_if_not():
    with Simulation(["a", "b"], seed=1, options=Options(lost_after=10)) as simulation:
        a = simulation.worker("a")
        simulation.run("a", lambda: a.rpc_sync("b", simulated.who))
        simulation.pause("b", 5)
        assert simulation.run("a", lambda: a.rpc_sync("b", simulated.who)) == "b"
        simulation.pause("b", 50)
        with pytest.raises(WorkerLost, match="'b'"):
            simulation.run("a", lambda: a.rpc_sync("b", simulated.who))


@pytest.mark.parametrize("point", ["during execution", "before answer"])
def test_a_callee_that_crashes_is_lost_to_its_caller_at_once(point):
    with Simulation(["a", "b"], seed=1) as simulation:
        a = simulation.worker("a")
        simulation.run("a", lambda: a.rpc_sync("b", simulated.who))
        simulation.crash_at("b", point)
        began = simulation.now
        with pytest.raises(WorkerLost, match="worker 'b' was lost"):
            simulation.run("a", lambda: a.rpc_sync("b", simulated.who))
        assert simulation.now - began < 0.1
        assert not simulation.hosts["b"].is_alive


def test_a_caller_that_crashes_before_it_sends_leaves_nothing_running():
    simulated.RUNS.clear()
    with Simulation(["a", "b"], seed=1) as simulation:
        a = simulation.worker("a")
        simulation.crash_at("a", "before send")
        assert simulation.run_all({"a": lambda: a.rpc_sync("b", simulated.count, ("x",))}) == {
            "a": None
        }
        simulation.settle(30)
        assert simulated.RUNS == {}
        assert simulation.worker("b").peers.get("a").connections() == []


def test_a_crash_in_a_chain_reaches_everyone_who_waits():
    with Simulation(["a", "b", "c"], seed=1) as simulation:
        simulation.crash_at("c", "during execution", 1)
        a = simulation.worker("a")
        with pytest.raises(WorkerLost, match="'c'") as caught:
            simulation.run("a", lambda: a.rpc_sync("b", simulated.bounce, ("c", 3)))
        assert "raised on worker 'b'" in caught.value.__notes__[0]


def test_a_worker_that_returns_is_a_new_incarnation():
    with Simulation(["a", "b"], seed=1) as simulation:
        a = simulation.worker("a")
        reference = simulation.run("a", lambda: a.remote("b", dict))
        simulation.run("a", lambda: a.rpc_sync("b", simulated.who))
        before = a.peers.get("b").info.incarnation
        simulation.crash("b")
        simulation.settle(1)
        simulation.restart("b")
        assert simulation.run("a", lambda: a.rpc_sync("b", simulated.who)) == "b"
        assert a.peers.get("b").info.incarnation != before
        with pytest.raises(WorkerLost):
            simulation.run("a", reference.to_here)
        del reference


def test_an_event_of_a_time_that_is_over_comes_next_and_time_does_not_go_back():
    seen = []
    with Simulation(["a"], seed=1) as simulation:
        simulation.settle(5)
        simulation.at(5, None, "now", lambda: seen.append(("now", simulation.now)))
        simulation.at(1, None, "over", lambda: seen.append(("over", simulation.now)))
        simulation.settle(1)
    assert seen == [("now", 5), ("over", 5)]


def test_the_program_of_a_worker_that_died_gives_none_though_it_was_started_again():
    with Simulation(["a"], seed=1) as simulation:
        simulation.at(1.0, None, "crash", lambda: simulation.crash("a"))
        simulation.at(1.0, None, "restart", lambda: simulation.restart("a"))
        assert simulation.run_all({"a": lambda: simulation.sleep(5)}) == {"a": None}


def test_blocking_handlers_and_futures_pass_virtual_time():
    with Simulation(["a", "b"], seed=1) as simulation:
        a = simulation.worker("a")

        def program():
            calls = [a.rpc_async("b", simulated.bounce, ("a", 4)) for _ in range(5)]
            simulation.sleep(100)
            return [call.wait() for call in calls]

        assert simulation.run("a", program) == [4] * 5
        assert simulation.now >= 100


def test_a_wait_for_what_never_comes_ends_at_the_deadline():
    with Simulation(["a", "b"], seed=1) as simulation:
        a = simulation.worker("a")
        with pytest.raises(CallTimeout):
            simulation.run("a", lambda: a.rpc_sync("b", simulated.never, timeout=7))
        assert simulation.now == pytest.approx(7, abs=0.1)


def test_a_program_that_does_not_end_is_named_with_the_seed_and_the_last_events():
    with (
        pytest.raises(TimeoutError, match=r"did not end by virtual time 5\.0; seed=7") as caught,
        Simulation(["a", "b"], seed=7) as simulation,
    ):
        a = simulation.worker("a")
        simulation.run("a", lambda: a.rpc_sync("b", simulated.never, timeout=0), limit=5.0)
    assert caught.value.__notes__ == ["in a simulation with seed=7"]


def test_only_a_worker_that_died_is_started_again():
    with Simulation(["a"], seed=1) as simulation:
        with pytest.raises(UsageError, match="a is alive: crash it first"):
            simulation.restart("a")
        simulation.crash("a")
        simulation.crash("a")
        assert sum("crash a" in event for event in simulation.trace) == 1
        simulation.restart("a")
        assert simulation.run("a", lambda: 3) == 3


def test_waiting_outside_a_program_is_refused():
    refused = pytest.raises(UsageError, match=r"use Simulation\.run")
    with Simulation(["a", "b"], seed=1) as simulation, refused:
        simulation.worker("a").rpc_sync("b", simulated.who)


def test_an_unknown_worker_is_named_with_the_known_ones():
    refused = pytest.raises(UnknownWorker, match="no worker 'z'; the workers are 'a', 'b'")
    with Simulation(["a", "b"], seed=1) as simulation, refused:
        simulation.run("a", lambda: simulation.worker("a").rpc_sync("z", simulated.who))


def test_services_and_notices_work_over_slow_networks():
    got: list[int] = []
    with Simulation(["a", "b"], seed=5, faults=Faults(longest=0.5, lag=0.5)) as simulation:
        a, b = simulation.worker("a"), simulation.worker("b")
        b.register_service("sum", lambda r: r.reply(r.header, [r.arrays[0] + r.arrays[1]]))
        b.register_service("note", lambda r: got.append(r.header), inline=True)
        held = []
        b.register_service("late", held.append, inline=True)

        def program():
            for number in range(100):
                a.notify_service("b", "note", number)
            for number in range(20):
                content = [np.ones(2)] * 2
                deadline = a.outgoing.deadline(5)
                call = a.outgoing.service("b", "sum", number, content, deadline, waits=False)
                header, (array,) = call.wait()
                assert (header, array.tolist()) == (number, [2.0, 2.0])

        simulation.run("a", program)
        assert got == list(range(100))
        late = partial(a.outgoing.service, "b", "late", None, (), 1000, waits=False)
        call = simulation.run("a", late)
        simulation.settle(10)
        assert not call.done()


@pytest.mark.parametrize("seed", range(60))
def test_references_are_freed_exactly_when_their_last_holder_is_gone(seed):
    """Pass references around over a bad network, then drop them all: nobody keeps anything."""
    simulated.KEPT.clear()
    dice = random.Random(seed)
    names = ["a", "b", "c", "d"]
    options = Options(lost_after=1000)
    with Simulation(names, seed=seed, faults=BAD, options=options) as simulation:

        def program(name):
            def run():
                worker, held = simulation.worker(name), []
                for step in range(6):
                    to = dice.choice([other for other in names if other != name])
                    key = f"{name} {step} {seed}"
                    try:
                        reference = worker.remote(to, simulated.make, (1,), timeout=4)
                        if dice.random() < 0.5:
                            reference = worker.make_rref([step])
                        held.append(reference)
                        worker.rpc_sync(to, simulated.keep, (key, reference), timeout=4)
                        third = dice.choice(names)
                        worker.rpc_sync(to, simulated.pass_on, (third, key, reference), timeout=9)
                        held.append(worker.rpc_sync(to, simulated.make, (2,), timeout=4))
                    except PeerError:
                        pass

            return run

        simulation.run_all({name: program(name) for name in names})
        simulation.settle(20)
        simulated.KEPT.clear()
        settle(simulation, 300)
        for name in names:
            counts = simulation.worker(name).references.counts()
            assert counts == {"owned": 0, "held": 0, "given": 0}, (name, counts)


def test_a_value_lives_while_any_holder_does():
    simulated.KEPT.clear()
    with Simulation(["a", "b", "c"], seed=2, faults=Faults(longest=0.5, lag=0.5)) as simulation:
        a, c = simulation.worker("a"), simulation.worker("c")

        def give():
            a.rpc_sync("b", simulated.pass_on, ("c", "kept", a.make_rref({"x": 1})))

        simulation.run("a", give)
        simulation.settle(100)
        assert a.references.counts()["owned"] == 1
        assert simulation.run("c", lambda: c.name) == "c"
        assert simulation.run("c", simulated.KEPT["kept"].to_here) == {"x": 1}
        simulated.KEPT.clear()
        settle(simulation, 100)
        assert a.references.counts()["owned"] == 0


def test_the_references_of_a_lost_worker_go():
    simulated.KEPT.clear()
    with Simulation(["a", "b"], seed=2) as simulation:
        a = simulation.worker("a")

        def give():
            a.rpc_sync("b", simulated.keep, ("kept", a.make_rref(1)))

        simulation.run("a", give)
        simulation.settle(5)
        assert a.references.counts()["owned"] == 1
        simulation.crash("b")
        simulation.settle(5)
        assert a.references.counts() == {"owned": 0, "held": 0, "given": 0}
        simulated.KEPT.clear()
