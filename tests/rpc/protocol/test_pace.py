"""How fast a peer may send."""

import pytest

from telegrad.rpc.protocol.pace import Pace


def test_a_peer_may_be_a_second_ahead_and_then_rests_for_what_is_beyond():
    pace = Pace(100.0, now=10.0)
    assert pace.rest(100, 10.0) == 0.0
    assert pace.rest(150, 10.0) == pytest.approx(0.5)
    assert pace.rest(150, 10.5) == pytest.approx(0.0)


def test_time_in_which_nothing_came_is_not_saved_up():
    pace = Pace(100.0, now=0.0)
    assert pace.rest(0, 1000.0) == 0.0
    assert pace.rest(300, 1000.0) == pytest.approx(2.0)


def test_whoever_rests_as_told_keeps_to_the_rate():
    pace, now, received = Pace(1000.0, now=0.0), 0.0, 0
    for _ in range(100):
        received += 700
        now += pace.rest(received, now)
    assert received <= 1000.0 * now + 1000.0
