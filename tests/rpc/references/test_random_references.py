"""Random programs over references on bad networks: nothing is freed early, nothing is left."""

import collections
import gc
import random

import pytest
from tests.distributed.soak import amount

from telegrad.errors import CallTimeout, TelegradError
from telegrad.rpc.current import current_worker
from telegrad.rpc.options import Options
from telegrad.testing.simulation import Faults, Simulation

NAMES = ("a", "b", "c")
HELD = collections.defaultdict(list)
"""By worker, the references it holds, each with the value that it leads to."""


def keep(reference, value, seconds=0.0):
    current_worker().host.simulation.sleep(seconds)
    HELD[current_worker()].append((reference, value))


def make(value, seconds):
    current_worker().host.simulation.sleep(seconds)
    return value


def hand_out(pick):
    held = HELD[current_worker()]
    return held[pick % len(held)] if held else None


def pass_on(to, reference, value):
    current_worker().rpc_async(to, keep, (reference, value))


def fetch(reference, timeout):
    return reference.to_here(timeout)


class Hunt:
    """One seed: a program on each worker, deaths and cuts, and what must hold at any time."""

    def __init__(self, seed, disturbance):
        self.dice = random.Random(seed)
        self.disturbance = disturbance
        self.values = 0
        # Whether anyone lost anyone: then values may be gone, but never otherwise.
        self.is_lossy = disturbance != "none"
        self.faults = Faults(
            longest=self.dice.choice([0.002, 0.05, 0.5]),
            lag=self.dice.choice([0.0, 0.05, 0.5]),
            breaks=self.dice.choice([0.0, 0.0, 0.02]),
        )
        options = Options(rpc_timeout=self.dice.choice([0.05, 0.5, 5.0]), lost_after=20.0)
        self.simulation = Simulation(
            NAMES, seed=seed, faults=self.faults, options=options, on_start=self._watch
        )

    def _watch(self, worker):
        worker.on_worker_lost(lambda who, error: setattr(self, "is_lossy", True))

    def program(self, name):
        worker, dice = self.simulation.worker(name), random.Random(self.dice.random())

        def run():
            for _ in range(dice.randrange(4, 12)):
                try:
                    self._step(worker, dice)
                except TelegradError:
                    pass
                self.simulation.sleep(dice.choice([0.0, 0.001, 0.1, 1.0]))

        return run

    def _step(self, worker, dice):
        other, third = dice.choice(NAMES), dice.choice(NAMES)
        timeout = dice.choice([None, 0.01, 0.2, 20.0])
        pause = dice.choice([0.0, 0.0, 0.5])
        held = HELD[worker]
        move = dice.random()
        if move < 0.15:
            self.values += 1
            held.append((worker.make_rref(self.values), self.values))
        elif move < 0.4 or not held:
            self.values += 1
            value = self.values
            made = worker.remote(other, make, (value, pause), timeout=timeout)
            held.append((made, value))
            if pause:
                worker.rpc_async(third, keep, (made, value), timeout=timeout)
        elif move < 0.55:
            worker.rpc_async(other, keep, (*dice.choice(held), pause), timeout=timeout)
        elif move < 0.65:
            worker.rpc_async(other, pass_on, (third, *dice.choice(held)), timeout=timeout)
        elif move < 0.75:
            got = worker.rpc_sync(other, hand_out, (dice.randrange(9),), timeout=timeout)
            if got is not None:
                held.append(got)
        elif move < 0.85:
            self.check(*dice.choice(held), timeout)
        elif move < 0.9:
            worker.rpc_async(other, fetch, (dice.choice(held)[0], timeout), timeout=timeout)
        else:
            held.pop(dice.randrange(len(held)))

    def check(self, reference, value, timeout):
        """Fetch the value: it is right, or late, or somebody was lost."""
        try:
            assert reference.to_here(timeout) == value
        except CallTimeout:
            pass
        except TelegradError as error:
            # One that was not made in time says so: it was never there. (Whoever asked for it may
            # have forgotten by then why it gave up.)
            known = ("before the deadline", "was never made")
            if not self.is_lossy and not any(each in str(error) for each in known):
                pytest.fail(str(error))

    def disturb(self):
        simulation, (victim, other) = self.simulation, self.dice.sample(NAMES, 2)
        when, pause = self.dice.uniform(0.01, 4.0), self.dice.choice([0.0, 0.3, 30.0])
        if self.disturbance == "deaths":
            simulation.at(when, None, "crash", lambda: simulation.crash(victim))
            if self.dice.random() < 0.6:
                simulation.at(when + pause, None, "restart", lambda: self._restart(victim))
        elif self.disturbance == "cuts":
            simulation.at(when, None, "cut", lambda: simulation.cut(victim, other))
            simulation.at(when + pause, None, "heal", lambda: simulation.heal(victim, other))

    def _restart(self, name):
        self.simulation.restart(name)
        self.simulation.start(self.simulation.hosts[name], self.program(name))

    def run(self):
        simulation = self.simulation
        self.disturb()
        simulation.run_all({name: self.program(name) for name in NAMES}, limit=1000)
        simulation.settle(100)
        simulation.faults = Faults()
        living = [name for name in NAMES if simulation.hosts[name].is_alive]
        simulation.run_all({name: lambda n=name: self._check_all(n) for name in living}, limit=1e4)
        HELD.clear()
        gc.collect()
        simulation.settle(100)
        for name in living:
            self._check_empty(simulation.worker(name))

    def _check_all(self, name):
        for reference, value in list(HELD[self.simulation.worker(name)]):
            self.check(reference, value, 100.0)

    @staticmethod
    def _check_empty(worker):
        references = worker.references
        assert references.counts() == {"owned": 0, "held": 0, "given": 0}, worker
        for peer in worker.peers.all():
            for path in peer.connections():
                assert not path.serving | path.unwanted, (worker, path)
                assert not path.outbox, (worker, path)


@pytest.mark.parametrize("disturbance", ["none", "deaths", "cuts"])
def test_no_value_goes_while_it_is_held_and_all_go_in_the_end(disturbance):
    for seed in range(amount(8, 2000)):
        HELD.clear()
        hunt = Hunt(seed, disturbance)
        with hunt.simulation:
            hunt.run()
