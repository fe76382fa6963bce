"""References on paths that are lost, or that can't be opened: nothing stays behind."""

import gc
from types import SimpleNamespace

import pytest
from tests.interpreter import settle
from tests.rpc import simulated
from tests.rpc.neighbours import eventually, neighbours

from telegrad.errors import CallTimeout, WorkerLost
from telegrad.rpc.calls.future import Future
from telegrad.rpc.calls.incoming import async_execution
from telegrad.rpc.calls.service import seal_message
from telegrad.rpc.current import current_worker
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.options import Options
from telegrad.rpc.protocol.reference_table import ADD
from telegrad.rpc.wire.frames import ANSWER, CALL, CREATES, NOTICE, Frame
from telegrad.testing.simulation import Faults, Simulation

NOTHING = {"owned": 0, "held": 0, "given": 0}


@pytest.fixture
def simulation():
    simulated.KEPT.clear()
    with Simulation(["a", "b"], seed=3) as made:
        yield made
    simulated.KEPT.clear()


def nobody_answers(*_):
    raise WorkerLost("nobody answers")


def make_after_a_while():
    current_worker().host.simulation.sleep(2)
    return current_worker().make_rref(1)


def test_a_reference_in_an_answer_to_a_worker_that_died_meanwhile_is_not_counted(simulation):
    a, b = simulation.worker("a"), simulation.worker("b")
    simulation.at(1.0, None, "crash", lambda: simulation.crash("a"))
    simulation.run_all({"a": lambda: a.rpc_sync("b", make_after_a_while)})
    simulation.settle(5)
    assert b.references.counts() == NOTHING


def test_an_answer_whose_reader_died_before_it_said_that_its_references_came_is_forgotten(
    simulation,
):
    a, b = simulation.worker("a"), simulation.worker("b")
    simulation.run("a", lambda: a.rpc_sync("b", simulated.who))
    path = b.peers.get("a").incoming
    b.references.export(path, Frame(ANSWER, 0, 2), b.make_rref(1))
    b.endpoint_lost(path, ConnectionError("lost"))
    simulation.settle(1)
    assert b.references.counts() == NOTHING


class SlowToPack:
    def __reduce__(self):
        current_worker().host.simulation.sleep(2)
        return int, ()


def make_what_is_slow_to_pack():
    return current_worker().make_rref(1), SlowToPack()


@async_execution
def make_later_what_is_slow_to_pack():
    answer = Future()
    answer.set_result(make_what_is_slow_to_pack())
    return answer


@pytest.mark.parametrize("make", [make_what_is_slow_to_pack, make_later_what_is_slow_to_pack])
def test_a_reference_in_an_answer_that_was_given_up_while_it_was_packed_goes(simulation, make):
    a, b = simulation.worker("a"), simulation.worker("b")

    def program():
        with pytest.raises(CallTimeout):
            a.rpc_sync("b", make, timeout=1)

    simulation.run("a", program)
    simulation.settle(5)
    assert b.references.counts() == NOTHING


def test_what_a_call_created_that_was_given_up_goes_though_there_was_no_room_to_say_so(simulation):
    a, b = simulation.worker("a"), simulation.worker("b")

    def program():
        a.rpc_sync("b", simulated.who)
        a.peers.get("b").outgoing.can_send = lambda: False
        reference = a.remote("b", int, timeout=1e-6)
        simulation.sleep(1)
        with pytest.raises(CallTimeout):
            reference.to_here()

    simulation.run("a", program)
    simulation.settle(2)
    assert a.references.counts() == b.references.counts() == NOTHING


def test_a_worker_that_cant_be_dialled_is_told_on_the_path_that_it_opened(simulation, monkeypatch):
    a, b = simulation.worker("a"), simulation.worker("b")
    monkeypatch.setattr(b.host, "dial", nobody_answers)
    simulation.run("a", lambda: a.rpc_sync("b", simulated.keep, ("kept", a.make_rref(1))))
    simulation.settle(2)
    assert a.references.counts() == {"owned": 1, "held": 0, "given": 0}
    assert simulation.run("b", lambda: b.references.counts()) == {"owned": 0, "held": 1, "given": 0}
    simulated.KEPT.clear()
    settle(simulation, 2)
    assert a.references.counts() == b.references.counts() == NOTHING


def test_no_place_is_kept_for_an_early_reference_on_a_path_that_was_lost(simulation):
    a, b = simulation.worker("a"), simulation.worker("b")
    simulation.run("a", lambda: a.rpc_sync("b", simulated.who))
    path = b.peers.get("a").incoming
    b.endpoint_lost(path, ConnectionError("lost"))
    fields = [a.next_id(), a.next_id(), "b", b.id, b.info.incarnation, True]
    with pytest.raises(WorkerLost, match="worker 'a', which sent a reference, was lost"):
        b.references.acceptor(path)([fields])
    assert b.references.counts() == NOTHING


# An error that is kept keeps no frames, and so no handles.


@pytest.fixture
def uncollected():
    """What is in no cycle goes without the collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def fetch_in_vain(reference, kind):
    try:
        reference.to_here()
    except kind as error:
        return str(error)
    raise AssertionError("expected an error")


def test_a_reference_to_a_value_that_was_not_made_in_time_goes_after_it_was_fetched(simulation):
    a = simulation.worker("a")

    def program():
        number = a.next_id()
        reference = a.references.ask_for(number, a.find("b").info)
        a.references.asked(number, CallTimeout("too late"))
        assert fetch_in_vain(reference, CallTimeout) == "too late"
        assert fetch_in_vain(reference, CallTimeout) == "too late"

    simulation.run("a", program)
    simulation.settle(2)
    assert a.references.counts() == NOTHING


def test_a_reference_that_its_owner_does_not_know_any_more_is_an_error_that_says_so(simulation):
    a, b = simulation.worker("a"), simulation.worker("b")

    def program():
        # As from a worker that died while this fork was on its way, and with it the value.
        rref, fork = b.next_id(), a.next_id()
        path = SimpleNamespace(peer=WorkerInfo("lost", 9), closed=False)
        descriptor = [rref, fork, "b", b.info.id, b.info.incarnation, False]
        (reference,) = a.references.acceptor(path)([descriptor])
        simulation.sleep(1)
        return fetch_in_vain(reference, WorkerLost)

    assert "its owner does not know the reference any more" in simulation.run("a", program)
    simulation.settle(2)
    assert a.references.counts() == NOTHING


def test_a_reference_that_comes_home_to_a_value_that_is_gone_can_neither_be_used_nor_passed_on(
    simulation,
):
    a, b = simulation.worker("a"), simulation.worker("b")

    def program():
        # As from a user that this owner had lost for a while, and with it the value.
        fields = [a.next_id(), b.next_id(), "a", a.id, a.info.incarnation, False]
        a.rpc_sync("b", simulated.who)
        (reference,) = a.references.acceptor(a.peers.get("b").outgoing)([fields])
        with pytest.raises(WorkerLost, match="can't be passed on: its value is gone"):
            a.rpc_sync("b", simulated.fetch, (reference,))
        return fetch_in_vain(reference, WorkerLost)

    assert "worker 'a' does not know the reference" in simulation.run("a", program)
    simulation.settle(2)
    assert a.references.counts() == b.references.counts() == NOTHING


class Unrepeatable(Exception):
    def __init__(self, number):
        super().__init__(f"number {number}")


def fail_unrepeatably():
    raise Unrepeatable(3)


def test_an_owner_frees_a_failed_value_after_it_was_fetched(simulation):
    a = simulation.worker("a")

    def program():
        reference = a.remote("a", simulated.fail, ("none",))
        assert fetch_in_vain(reference, KeyError) == "'none'"
        with pytest.raises(KeyError):
            reference.local_value()

    simulation.run("a", program)
    simulation.settle(2)
    assert a.references.counts() == NOTHING


def test_a_path_that_breaks_under_a_call_keeps_nothing_of_its_caller(uncollected):
    with neighbours("a", "b") as (a, _):
        reference = a.remote("b", int)
        assert reference.to_here() == 0

        def broken(*_):
            raise BrokenPipeError("broken")

        def program(reference):
            a.peers.get("b").outgoing.connection.send_small = broken
            with pytest.raises(WorkerLost, match="broken"):
                a.rpc_sync("b", simulated.fetch, (reference,))

        program(reference)
        assert a.references.counts()["held"] == 1
        del reference
        assert eventually(lambda: a.references.counts() == NOTHING)


def test_a_call_that_could_not_be_packed_is_in_no_cycle_with_its_error(uncollected):
    with neighbours("a", "b") as (a, _):
        reference = a.remote("b", int)
        assert reference.to_here() == 0
        a.endpoint_lost(a.peers.get("b").outgoing, ConnectionError("cut"))
        with pytest.raises(WorkerLost, match="can't be passed on"):
            a.rpc_sync("b", simulated.fetch, (reference,))
        del reference
        assert eventually(lambda: a.references.counts() == NOTHING)


def test_an_owner_that_cant_be_reached_keeps_nothing_of_who_tried(
    simulation, monkeypatch, uncollected
):
    a, b = simulation.worker("a"), simulation.worker("b")
    fields = [a.next_id(), a.next_id(), "b", b.id, b.info.incarnation, False]

    def program():
        a.rpc_sync("b", simulated.who)
        a.peers.get("b").outgoing.closed = True
        monkeypatch.setattr(a.host, "dial", nobody_answers)
        (reference,) = a.references.acceptor(a.loopback)([fields])
        with pytest.raises(WorkerLost, match="nobody answers"):
            reference.to_here()

    simulation.run("a", program)
    simulation.settle(2)
    assert a.references.counts() == NOTHING


def test_an_error_that_cant_be_copied_is_raised_unchanged(simulation):
    a = simulation.worker("a")

    def program():
        reference = a.remote("a", fail_unrepeatably)
        assert fetch_in_vain(reference, Unrepeatable) == "number 3"

    simulation.run("a", program)


def test_what_a_lost_user_asked_for_is_kept_for_nobody_if_it_is_read_after_the_loss():
    with neighbours("a", "b") as (a, b):
        a.rpc_sync("b", simulated.who)
        path = b.peers.get("a").incoming
        b.endpoint_lost(path, ConnectionError("cut"))
        header, _ = a.codec.seal(a.codec.pack_call(simulated.who, (), None), None, None)
        task = b.receive(path, Frame(CALL, CREATES, 99, a.next_id(), header, ()))
        task()
        assert b.references.counts()["owned"] == 0
        assert not path.serving


def test_a_lost_user_is_not_counted_if_its_word_is_read_after_the_loss():
    with neighbours("a", "b") as (a, b):
        a.rpc_sync("b", simulated.who)
        path = b.peers.get("a").incoming
        kept = b.references.keep(3)
        b.endpoint_lost(path, ConnectionError("cut"))
        header, _ = seal_message("telegrad.references", [[ADD, kept, a.next_id(), False]], ())
        b.receive(path, Frame(NOTICE, 0, 0, 0, header, ()))
        b.references.release(kept, None)
        assert eventually(lambda: b.references.counts()["owned"] == 0)


# A worker may be met anew while its loss is still being told.


def meeting_anew(worker, other, meet):
    """Lose each other, and meet again before this worker has told all that it lost the other."""
    (path,) = worker.peers.get(other.name).connections()
    ended, met = worker.host.ended, []

    def then_meet(endpoint):
        ended(endpoint)
        worker.host.ended = ended
        for each in other.peers.get(worker.name).connections():
            other.endpoint_lost(each, ConnectionError("cut"))
        met.append(meet())

    worker.host.ended = then_meet
    worker.endpoint_lost(path, ConnectionError("cut"))
    return met.pop()


def test_a_user_that_was_met_anew_is_counted_although_its_loss_is_still_being_told():
    with neighbours("owner", "user") as (owner, user):
        user.rpc_sync("owner", simulated.who)
        reference = meeting_anew(owner, user, lambda: user.rpc_sync("owner", simulated.make, (7,)))
        assert reference.to_here() == 7
        del reference
        assert eventually(lambda: owner.references.counts() == NOTHING)


def test_an_owner_that_was_met_anew_is_not_given_up_although_its_loss_is_still_being_told():
    with neighbours("owner", "user") as (owner, user):
        user.rpc_sync("owner", simulated.who)
        reference = meeting_anew(user, owner, lambda: user.rpc_sync("owner", simulated.make, (7,)))
        assert reference.to_here() == 7
        del reference
        assert eventually(lambda: owner.references.counts() == NOTHING)


def test_what_a_path_counted_goes_with_it_though_a_new_one_is_there_before_its_loss_is_told():
    with neighbours("owner", "user") as (owner, user):
        # All goes by one path: the end of another would tell of the loss as well.
        user.host.dial = nobody_answers
        owner.rpc_sync("user", simulated.keep, ("kept", owner.make_rref(1)))
        path = owner.peers.get("user").outgoing
        assert eventually(lambda: owner.references.counts()["given"] == 0)
        # A send was interrupted; another thread calls before the first has told the loss.
        path.closed = True
        assert owner.rpc_sync("user", simulated.who) == "user"
        owner.endpoint_lost(path, ConnectionAbortedError("a send was interrupted"))
        assert eventually(lambda: owner.references.counts() == NOTHING)
        simulated.KEPT.clear()
        assert eventually(lambda: user.references.counts() == NOTHING)


def test_a_call_that_was_given_up_before_it_was_refused_takes_its_references_back():
    faults, options = Faults(shortest=1.0, longest=1.0), Options(calls_of_peer=1)
    with Simulation(["a", "b"], seed=3, faults=faults, options=options) as simulation:
        a = simulation.worker("a")

        def ask():
            held = a.rpc_async("b", simulated.wait_for_gate)
            with pytest.raises(CallTimeout):
                a.rpc_sync("b", simulated.keep, ("key", [a.make_rref(3)]), timeout=0.5)
            simulation.sleep(5)
            counts = a.references.counts()
            simulated.open_gate()
            return held.wait(), counts

        assert simulation.run("a", ask) == ("open", NOTHING)
