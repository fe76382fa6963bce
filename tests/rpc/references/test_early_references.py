"""A reference that reaches its owner before the creation of its value."""

import re

import pytest
from tests.interpreter import settle
from tests.rpc import simulated

from telegrad.errors import CallTimeout, Refused, WorkerLost
from telegrad.rpc.protocol.reference_table import DELETE
from telegrad.rpc.references.rref import fetch_value_of
from telegrad.testing.simulation import Simulation


@pytest.mark.parametrize("seed", range(20))
def test_a_value_that_is_fetched_before_its_creation_came_arrives_all_the_same(seed):
    with Simulation(["reader", "owner"], seed=seed) as simulation:
        reader = simulation.worker("reader")
        fetched = []

        def program():
            number = reader.next_id()
            early = reader.references.ask_for(number, reader.find("owner").info)
            asked = reader.rpc_async("owner", fetch_value_of, (early,))
            # When this is answered, the fetch has been served and its own handle is gone.
            reader.rpc_sync("owner", simulated.who)
            reader.outgoing.call("owner", int, (5,), None, None, waits=False, creates=number)
            fetched.append(asked.wait(10))
            reader.references.asked(number, None)

        simulation.run_all({"reader": program})
        assert fetched == [5]
        simulation.settle(20)
        assert simulation.worker("owner").references.counts()["owned"] == 0


def test_a_fetch_is_given_up_with_whoever_should_have_created_the_value():
    with Simulation(["reader", "owner", "maker"], seed=0) as simulation:
        reader, maker = simulation.worker("reader"), simulation.worker("maker")
        errors = []

        def program():
            maker_info = simulation.worker("owner").find("maker").info
            early = reader.references.ask_for(maker.next_id(), reader.find("owner").info)
            asked = reader.rpc_async("owner", fetch_value_of, (early,))
            reader.rpc_sync("owner", simulated.who)
            lost = WorkerLost("worker 'maker' was lost")
            simulation.worker("owner").references.peer_lost(maker_info, lost)()
            with pytest.raises(WorkerLost, match="maker"):
                asked.wait(10)
            errors.append(asked.exception())

        simulation.run_all({"reader": program})
        assert len(errors) == 1
        errors.clear()
        simulation.settle(20)
        assert simulation.worker("owner").references.counts()["owned"] == 0


def pass_on_before_it_is_made(simulation, create):
    """Give `reader` a reference to a value that `create(number)` will fail to have made."""
    maker = simulation.worker("maker")
    simulated.KEPT.clear()

    def program():
        number = maker.next_id()
        early = maker.references.ask_for(number, maker.find("owner").info)
        maker.rpc_sync("reader", simulated.keep, ("early", early))
        create(number)

    simulation.run("maker", program)


def fetch_in_vain():
    try:
        # Without a deadline: it is an error, not a wait.
        simulated.KEPT["early"].to_here(0)
    except WorkerLost as error:
        return str(error)
    raise AssertionError("expected an error")


def check_that_it_was_never_made(simulation, why):
    assert re.search(why, simulation.run("reader", fetch_in_vain, limit=100))
    simulated.KEPT.clear()
    settle(simulation, 20)
    for worker in (simulation.worker("reader"), simulation.worker("owner")):
        assert not any(worker.references.counts().values())
        for peer in worker.peers.all():
            assert not any(path.serving or path.unwanted for path in peer.connections())


def test_a_reference_whose_creation_fails_after_it_was_passed_on_is_an_error():
    with Simulation(["reader", "owner", "maker"], seed=0) as simulation:
        references = simulation.worker("maker").references
        pass_on_before_it_is_made(
            simulation, lambda number: references.asked(number, Refused("worker 'owner' is full"))
        )
        check_that_it_was_never_made(simulation, "'maker', .* gave up .*worker 'owner' is full")


def test_a_reference_whose_maker_died_before_its_owner_ever_met_it_is_an_error():
    with Simulation(["reader", "owner", "maker"], seed=0) as simulation:
        pass_on_before_it_is_made(simulation, lambda number: simulation.crash("maker"))
        check_that_it_was_never_made(simulation, "maker")


def test_a_reference_whose_maker_started_anew_is_an_error():
    with Simulation(["reader", "owner", "maker"], seed=0) as simulation:
        pass_on_before_it_is_made(simulation, lambda number: simulation.crash("maker"))
        simulation.restart("maker")
        check_that_it_was_never_made(simulation, "maker")


def test_a_creation_that_comes_after_it_was_given_up_changes_nothing():
    with Simulation(["reader", "owner", "maker"], seed=0) as simulation:
        maker = simulation.worker("maker")

        def late(number):
            maker.references.asked(number, CallTimeout("too late"))
            maker.host.simulation.sleep(1)
            call = maker.outgoing.call("owner", int, (5,), None, None, waits=False, creates=number)
            call.wait()
            maker.notify_service("owner", "telegrad.references", [(DELETE, number, number)])

        pass_on_before_it_is_made(simulation, late)
        check_that_it_was_never_made(simulation, "too late")
