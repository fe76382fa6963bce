"""Each call comes out of the table once, by answer, deadline or loss."""

import math
from dataclasses import dataclass

from tests.interpreter import needs_eager_collector
from tests.rpc.collecting import MANY, at_each_collection

from telegrad.rpc.protocol.calls import Calls


@dataclass
class Call:
    deadline: float
    forks: list[int] | None = None


def test_numbers_count_up_and_each_call_is_finished_once():
    calls = Calls()
    first, second = calls.begin(Call(1.0)), calls.begin(Call(2.0))
    assert (first, second) == (1, 2)
    assert calls.finish(second).deadline == 2.0
    assert calls.finish(second) is None
    assert len(calls) == 1


def test_only_calls_past_their_deadline_expire_oldest_first():
    calls = Calls()
    for deadline in (3.0, 1.0, 2.0):
        calls.begin(Call(deadline))
    assert calls.next_deadline() == 1.0
    assert calls.expired(2.0) == [Call(1.0), Call(2.0)]
    assert calls.expired(2.0) == []
    assert calls.next_deadline() == 3.0


def test_loss_drains_everything_and_nothing_is_left():
    calls = Calls()
    calls.begin(Call(math.inf))
    calls.begin(Call(1.0))
    assert calls.drain() == [Call(math.inf), Call(1.0)]
    assert len(calls) == 0
    assert calls.next_deadline() == math.inf


@needs_eager_collector
def test_calls_that_are_made_while_the_table_is_looked_at_do_not_upset_it():
    calls = Calls()
    for _ in range(MANY):
        calls.begin(Call(1.0))
    with at_each_collection(lambda: calls.begin(Call(2.0))):
        assert calls.next_deadline() == 1.0
        assert len(calls.expired(1.0)) == MANY
        assert set(map(type, calls.drain())) == {Call}


def test_the_references_of_a_call_are_kept_when_it_is_given_up_and_only_then():
    calls = Calls()
    numbers = [calls.begin(Call(1.0, forks)) for forks in ([7], [8], None)]
    assert calls.finish(numbers[0]) is not None
    assert [call.forks for call in calls.expired(2.0)] == [[8], None]
    assert calls.give_up(numbers[0]) is None
    assert calls.given_up == {numbers[1]: [8]}


def test_two_who_give_up_a_call_at_once_keep_its_references():
    class Contested(dict):
        def get(self, number):
            call = super().get(number)
            if others:
                others.pop()()
            return call

    calls = Calls()
    number = calls.begin(Call(1.0, [7]))
    calls.open = Contested(calls.open)
    others = [lambda: calls.give_up(number)]
    assert calls.give_up(number) is None
    assert calls.given_up == {number: [7]}
