"""No number is accepted twice, in whatever order they come."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from telegrad.rpc.protocol.arrivals import Arrivals


@given(st.lists(st.integers(1, 60), max_size=200))
def test_a_number_is_new_exactly_once(numbers):
    arrivals = Arrivals()
    seen = set()
    for number in numbers:
        assert arrivals.accept(number) == (number not in seen)
        seen.add(number)
        assert arrivals.has(number)


def test_numbers_that_leave_no_gap_are_all_new_in_any_order_and_none_is_kept():
    for numbers in itertools.permutations(range(1, 7)):
        arrivals = Arrivals()
        assert all(arrivals.accept(number) for number in numbers)
        assert not any(arrivals.accept(number) for number in numbers)
        assert not arrivals._ahead


def test_gaps_that_never_fill_do_not_grow_without_bound():
    arrivals = Arrivals()
    for number in range(2, 200_000, 2):
        assert arrivals.accept(number)
    assert len(arrivals._ahead) < 40_000
    assert not any(arrivals.accept(number) for number in [3, *range(2, 200_000, 2)])
