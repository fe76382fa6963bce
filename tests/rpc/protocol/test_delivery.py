"""Notices that found no room go in their order, when there is room."""

import math

from telegrad.rpc.protocol.delivery import Outbox


def test_what_found_no_room_is_tried_after_a_pause_and_all_of_it_as_long_as_there_is_room():
    outbox = Outbox()
    outbox.post(b"a", now=0.0)
    outbox.post(b"b", now=0.1)
    assert outbox.take(0.2) is None
    assert outbox.take(0.25) == b"a"
    assert outbox.take(0.25) == b"b"
    assert outbox.take(100.0) is None
    assert outbox.next_due() == math.inf


def test_what_still_finds_no_room_stays_the_first():
    outbox = Outbox()
    outbox.post(b"a", 0.0)
    outbox.post(b"b", 0.0)
    outbox.put_back(outbox.take(1.0), 1.0)
    assert outbox.next_due() == 1.25
    assert outbox.take(1.2) is None
    assert outbox.take(1.25) == b"a"


def test_what_comes_after_all_has_gone_is_tried_after_a_pause_of_its_own():
    outbox = Outbox()
    outbox.post(b"a", 0.0)
    assert outbox.take(1.0) == b"a"
    assert outbox.take(1.0) is None
    outbox.post(b"b", 5.0)
    assert outbox.next_due() == 5.25
    outbox.clear()
    assert outbox.next_due() == math.inf
