"""The order of turns alone, without threads, sockets or time: who asks when is made up."""

import random
from types import SimpleNamespace

import pytest

from telegrad.rpc.driver import lead
from telegrad.rpc.options import Options

TURNS = 2000


class Asked:
    """The links that have asked, in the order in which a system may tell of them."""

    def __init__(self, dice):
        self.dice = dice
        self.links = []

    def poll(self, seconds):
        for link in self.links:
            link.passes_a_look()
        found = [(link.fd, 0) for link in self.links if link.asked is not None]
        self.dice.shuffle(found)
        return found

    def add(self, fd):
        pass

    def watch(self, fd, *, once):
        pass

    def unwatch(self, fd):
        pass

    def fileno(self):
        return -1

    def close(self):
        pass


class Trainer:
    """A link whose peer asks again some looks after it was answered, or some turns after that."""

    slow = False
    closed = False
    has_turn = False
    watched = False
    turn_at = 0.0

    def __init__(self, fd, looks, log):
        self.fd = fd
        self.looks = looks
        self.log = log
        self.connection = SimpleNamespace(fileno=lambda: fd)
        self.left = 0
        self.asked = 0
        """How many turns there had been when it asked; None while it does not."""

    def passes_a_look(self):
        if self.asked is None:
            self.left -= 1
            if self.left <= 0:
                self.asked = len(self.log.turns)

    def take_turn(self, me, keeps):
        assert self.asked is not None
        self.log.waits.append((self.fd, self.asked, len(self.log.turns)))
        self.log.turns.append(self.fd)
        self.left = self.looks()
        # At once: before the others of this round have had their turns.
        self.asked = len(self.log.turns) if self.left == 0 else None
        if len(self.log.turns) == TURNS:
            self.log.lead.close()

    def cork(self):
        pass

    uncork = cork


def turns_of(monkeypatch, dice, all_looks):
    """Let one lead serve the links; return what was noted."""
    asked = Asked(dice)
    monkeypatch.setattr(lead, "ReadySet", lambda: asked)
    host = SimpleNamespace(
        options=Options(spin=0.0),
        spare_processors=lambda: -1,
        late=(),
        handlers=SimpleNamespace(waiting=()),
        monitor=SimpleNamespace(dozes=False, watch=lambda lead: None, unwatch=lambda lead: None),
        start=lambda task: started.append(task),
    )
    started = []
    log = SimpleNamespace(turns=[], waits=[], lead=lead.Lead(host))
    links = [Trainer(1000 + n, looks, log) for n, looks in enumerate(all_looks)]
    for link in links:
        log.lead.add(link)
    asked.links += links
    log.lead.start_attending()
    started[0]()
    log.lead.free()
    return log


def turns_of_others(log):
    """Of each link that waited, how many turns each other one had meanwhile."""
    for fd, asked, served in log.waits:
        between = log.turns[asked:served]
        assert fd not in between
        yield from (between.count(other) for other in set(between))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("count", [2, 4, 14])
def test_while_one_waits_no_other_has_two_turns(monkeypatch, seed, count):
    dice = random.Random(seed)
    longest = [dice.choice((0, 1, 2, 5)) for _ in range(count)]
    log = turns_of(monkeypatch, dice, [lambda most=most: dice.randint(0, most) for most in longest])
    assert len(log.turns) >= TURNS
    assert max(turns_of_others(log)) == 1


@pytest.mark.parametrize("count", [2, 4, 14])
def test_those_that_ask_again_at_once_have_as_many_turns_each(monkeypatch, count):
    log = turns_of(monkeypatch, random.Random(0), [lambda: 0] * count)
    turns = [log.turns.count(1000 + n) for n in range(count)]
    assert max(turns) - min(turns) <= 1
