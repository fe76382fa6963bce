"""What the collector frees may differentiate itself, at whichever moment that is."""

import pytest
from tests.rpc.inside import replace_lock
from tests.rpc.test_finalizers import Watched, in_time

import telegrad as tg
from telegrad.tensors.forward import levels
from telegrad.tensors.forward.levels import Level, Tangents
from telegrad.tensors.recording import accumulation


@pytest.mark.usefixtures("_collector")
def test_a_pass_to_the_leaf_that_just_takes_its_gradient_loses_nothing(monkeypatch):
    leaf = tg.tensor([1.0, 2.0], requires_grad=True)
    (leaf * 10).sum().backward()
    one, other = (leaf * 2).sum(), (leaf * 3).sum()
    locks = [Watched(lock, other.backward) for lock in accumulation._LOCKS]
    monkeypatch.setattr(accumulation, "_LOCKS", locks)
    assert in_time(one.backward)
    assert leaf.grad.numpy().tolist() == [15.0, 15.0]


class Scarce:
    """A lock that leaves Python none of the pairs that it keeps for the next one to be made."""

    def __init__(self, lock):
        self.lock, self.kept = lock, []
        self.release = lock.release

    def acquire(self):
        self.lock.acquire()
        self.kept += [(number, number) for number in range(3000)]


@pytest.mark.usefixtures("_collector")
def test_levels_may_be_made_while_another_is(monkeypatch):
    made = []
    watched = Watched(Scarce(levels._clock_lock), lambda: made.append(Level()))
    monkeypatch.setattr(levels, "_clock_lock", watched)
    assert in_time(lambda: made.append(Level()))
    assert len({level.depth for level in made}) == 2


@pytest.mark.usefixtures("_collector")
def test_tangents_that_are_made_while_those_of_a_level_are_looked_through_go_with_it():
    level, kept = Level(), []
    level.prune_at = 3

    def make():
        kept.extend(Tangents({level: 1}) for _ in range(5))

    make_at_first = [Tangents({level: 1}) for _ in range(3)]
    replace_lock(level, lambda lock: Watched(lock, make))
    assert in_time(make)
    level.close()
    assert len(kept) == 10
    assert not any([*kept, *make_at_first])
