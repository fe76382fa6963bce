"""What a worker knows of others, as they come, go and come again."""

from telegrad.rpc.names import UNKNOWN_ID, WorkerInfo
from telegrad.rpc.peers import Peers


def test_of_an_incarnation_that_another_has_replaced_nothing_is_new():
    peers = Peers()
    peer = peers.add(WorkerInfo("b", 1, 10), "unix:///old")
    peer.given_up = 3
    assert peers.add(WorkerInfo("b", 2, 20), "unix:///new") is peer
    assert peers.add(WorkerInfo("b", 1, 10), "unix:///old") is peer
    assert (peer.info, peer.address) == (WorkerInfo("b", 2, 20), "unix:///new")
    assert (peers.holder_of(1), peers.holder_of(2)) == (None, "b")
    # The paths of the new one are counted from the first.
    assert peer.given_up == 0


def test_a_stranger_that_left_is_forgotten_unless_another_has_come_under_its_name():
    peers = Peers()
    stranger = peers.add(WorkerInfo("b", UNKNOWN_ID, 10), "")
    peers.forget_stranger(stranger)
    assert peers.get("b") is None
    known = peers.add(WorkerInfo("b", 1, 20), "unix:///b")
    peers.forget_stranger(stranger)
    peers.forget_stranger(known)
    assert peers.get("b") is known
