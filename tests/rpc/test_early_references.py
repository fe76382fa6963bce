"""A reference that reaches its owner before the creation of its value."""

import pytest
from tests.rpc import simulated

from telegrad.errors import WorkerLost
from telegrad.rpc.rref import fetch_value_of
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
            simulation.worker("owner").references.peer_lost(maker_info, lost)
            with pytest.raises(WorkerLost, match="maker"):
                asked.wait(10)
            errors.append(asked.exception())

        simulation.run_all({"reader": program})
        assert len(errors) == 1
        errors.clear()
        simulation.settle(20)
        assert simulation.worker("owner").references.counts()["owned"] == 0
