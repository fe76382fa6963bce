"""Bytes of requests are bounded in all and for each peer."""

from telegrad.rpc.protocol.budget import Budget


def test_the_sum_over_all_peers_is_bounded():
    budget = Budget(100, 80)
    assert budget.admit("a", 60)
    assert not budget.admit("b", 50)
    assert budget.admit("b", 40)
    assert budget.held == 100


def test_each_peer_has_a_bound_of_its_own():
    budget = Budget(1000, 80)
    assert budget.admit("a", 60)
    assert not budget.admit("a", 30)
    assert budget.admit("b", 30)


def test_what_was_served_makes_room_and_whoever_waits_is_told():
    told = []
    budget = Budget(100, 100)
    budget.on_release = lambda: told.append(budget.held)
    assert budget.admit("a", 100)
    assert not budget.admit("a", 1)
    budget.release("a", 100)
    assert told == [0]
    assert budget.admit("a", 100)


def test_what_was_served_makes_room_for_its_peer_up_to_the_bound():
    budget = Budget(1000, 80)
    assert budget.admit("a", 60)
    assert budget.admit("a", 20)
    budget.release("a", 20)
    assert not budget.admit("a", 30)
    assert budget.admit("a", 20)
    budget.release("a", 60)
    budget.release("a", 20)
    assert budget.admit("a", 90)


def test_a_request_alone_is_admitted_since_limits_bound_it():
    budget = Budget(100, 50)
    assert budget.admit("a", 120)
    assert not budget.admit("b", 1)
    budget.release("a", 120)
    assert budget.held == 0
