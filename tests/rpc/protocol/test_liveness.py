"""A quiet peer is pinged, one that stays quiet is lost, our own sleep is not held against it."""

from telegrad.rpc.protocol.liveness import Liveness, Verdict


def test_a_peer_that_sends_is_alive():
    liveness = Liveness(0.0, 10.0)
    assert [liveness.tick(count, 2.0 * count) for count in (1, 2, 3)] == [Verdict.ALIVE] * 3


def test_a_silent_peer_is_pinged_and_then_lost_after_the_configured_time():
    liveness = Liveness(0.0, 10.0)
    liveness.tick(1, 0.0)
    verdicts = [liveness.tick(1, float(now)) for now in (2, 4, 6, 8, 10)]
    assert verdicts == [Verdict.QUIET] * 4 + [Verdict.LOST]
    assert liveness.heard == 0.0


def test_the_time_counts_from_the_last_sign_of_life_and_a_little_lateness_of_ticks_adds_nothing():
    liveness = Liveness(0.0, 10.0)
    assert [liveness.tick(count, 2.0 * count) for count in range(5)] == [Verdict.ALIVE] * 5
    verdicts = [liveness.tick(4, float(now)) for now in (11, 14, 17, 20)]
    assert verdicts == [Verdict.QUIET] * 3 + [Verdict.LOST]


def test_time_in_which_this_process_did_not_run_does_not_count():
    liveness = Liveness(0.0, 10.0)
    liveness.tick(1, 0.0)
    liveness.tick(1, 2.0)
    assert liveness.tick(1, 100.0) is Verdict.QUIET
    assert liveness.tick(2, 102.0) is Verdict.ALIVE
