"""Which sessions there are, as workers come and go."""

from telegrad.rpc.names import UNKNOWN_ID, WorkerInfo
from telegrad.rpc.peers import Peers


def test_a_worker_is_known_by_the_number_that_it_has_now():
    peers = Peers()
    session = peers.enter(WorkerInfo("b", 1, 10))
    peers.tidy(session)
    session.named(WorkerInfo("b", 2, 20), "unix:///new")
    peers.tidy(session)
    assert (peers.holder_of(1), peers.holder_of(2)) == (None, "b")
    assert peers.find(2) is peers.find("b") is session


def test_a_stranger_that_left_is_forgotten_unless_another_has_come_under_its_name():
    peers = Peers()
    stranger = peers.enter(WorkerInfo("b", UNKNOWN_ID, 10))
    peers.tidy(stranger)
    assert peers.get("b") is None
    known = peers.enter(WorkerInfo("b", 1, 20))
    peers.tidy(stranger)
    peers.tidy(known)
    assert peers.get("b") is known


def test_a_worker_that_has_left_is_not_entered_again_and_its_next_life_is():
    peers = Peers()
    session = peers.enter(WorkerInfo("b", 1, 10))
    session.left(ConnectionError("it has left"))
    peers.remove(session)
    peers.enter(WorkerInfo("b", 1, 10))
    assert peers.get("b") is None
    assert peers.enter(WorkerInfo("b", 1, 20)) is peers.get("b")
