"""When the workers of a cluster may go, decided without any of them."""

from telegrad.rpc.membership.termination import Round, TerminationDetector


def test_all_may_go_when_nobody_served_anything_between_two_reports():
    leaving = TerminationDetector(2)
    assert leaving.report("a", 3, "a1") is None
    assert leaving.report("b", 5, "b1") == Round(False, ["a1", "b1"])
    assert leaving.report("b", 5, "b2") is None
    assert leaving.report("a", 3, "a2") == Round(True, ["b2", "a2"])


def test_a_call_that_came_after_a_report_makes_another_round():
    leaving = TerminationDetector(2)
    leaving.report("a", 0, None)
    leaving.report("b", 0, None)
    leaving.report("a", 1, None)
    assert leaving.report("b", 0, None) == Round(False, [None, None])
    leaving.report("a", 1, None)
    assert leaving.report("b", 0, None) == Round(True, [None, None])


def test_the_lost_are_not_waited_for():
    leaving = TerminationDetector(3)
    assert leaving.lost("c") is None
    leaving.report("a", 0, "a1")
    assert leaving.report("b", 0, "b1") == Round(False, ["a1", "b1"])
    leaving.report("a", 0, "a2")
    assert leaving.lost("b") == Round(False, ["a2"])
    assert leaving.report("a", 0, "a3") == Round(True, ["a3"])


def test_one_who_is_back_is_waited_for():
    leaving = TerminationDetector(2)
    leaving.lost("b")
    leaving.returned("b")
    assert leaving.report("a", 0, None) is None


def test_one_who_reported_and_was_lost_counts_once():
    leaving = TerminationDetector(3)
    leaving.report("b", 0, "b")
    assert leaving.lost("b") is None
    assert leaving.report("a", 0, "a") is None


def test_nobody_is_let_go_by_losses_alone():
    leaving = TerminationDetector(1)
    assert leaving.lost("a") is None
