"""A notice is repeated, ever more seldom, until it is acknowledged."""

import math

from tests.rpc.collecting import MANY, at_each_collection

from telegrad.rpc.protocol.delivery import Outbox


def test_nothing_is_repeated_before_its_time_and_all_of_it_after():
    outbox = Outbox()
    first = outbox.post("a", now=0.0)
    assert outbox.due(0.4) == []
    assert outbox.due(0.5) == [(first, "a")]
    assert outbox.due(1.0) == []
    assert outbox.due(1.5) == [(first, "a")]


def test_an_acknowledged_notice_is_never_repeated():
    outbox = Outbox()
    first, second = outbox.post("a", 0.0), outbox.post("b", 0.0)
    outbox.acknowledged(first)
    outbox.acknowledged(first)
    assert outbox.due(100.0) == [(second, "b")]
    outbox.clear()
    assert outbox.next_due() == math.inf


def test_notices_that_are_posted_while_the_box_is_looked_at_do_not_upset_it():
    outbox = Outbox()
    posted = [outbox.post("a", 0.0) for _ in range(MANY)]
    with at_each_collection(lambda: outbox.post("b", 9.0)):
        due = outbox.due(1.0)
    assert [number for number, _ in due] == posted
