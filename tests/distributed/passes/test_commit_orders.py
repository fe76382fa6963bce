"""The end of a pass whose root dies, in any order of what arrives: the real code, no network.

Each pair of workers that have met has a connection. What is on its way from a worker that died
arrives in order, up to some point; then the other end notices the death.
"""

import random
from functools import partial
from types import SimpleNamespace

import pytest
from tests.distributed.soak import amount

from telegrad.distributed.contexts.context import Contexts
from telegrad.distributed.contexts.leases import Leases
from telegrad.distributed.passes.commit import IN_DOUBT, OUTCOME, PassCommit
from telegrad.rpc.names import WorkerInfo

WORKERS = {name: WorkerInfo(name, number, 1) for number, name in enumerate("hrxyz", start=1)}
"""The home, the root, and three others."""
CONTEXT = WORKERS["h"].id << 48 | 7
PASS = WORKERS["r"].id << 48 | 9

# Who called whom with the context, in order: the caller introduces it. Who took part in the pass.
SHAPES = {
    "star": (("hr", "rx", "ry"), "rxy"),
    "chain": (("hr", "rx", "xy"), "rxy"),
    "back": (("hx", "xr", "ry"), "hrxy"),
    "all": (("hr", "hx", "hy", "rx", "ry"), "hrxy"),
    "long": (("hr", "rx", "xy", "yz"), "rxyz"),
}
ALL_WORDS = 9
"""As many as any root has."""


class LocalPass:
    outcome = None

    def commit(self):
        self.outcome = True if self.outcome is None else self.outcome

    def abort(self, why=None):
        self.outcome = False if self.outcome is None else self.outcome


class Node:
    """A worker, as far as the end of a pass needs it."""

    def __init__(self, world, name):
        self.world, self.name, self.info, self.id = world, name, WORKERS[name], WORKERS[name].id
        self.is_alive = True
        self.lost, self.services, self.callbacks, self.tasks = set(), {}, [], []
        self.outgoing = self
        self.host = SimpleNamespace(start=self.tasks.append)
        self.peers = SimpleNamespace(get=self.peer)
        self.contexts = Contexts(name, take_over=None)
        self.local_pass = None
        self.commit = PassCommit(self, self.contexts, Leases(self, self.contexts))

    def register_service(self, name, handler, inline):
        self.services[name] = handler

    def on_worker_lost(self, callback):
        self.callbacks.append(callback)

    def find(self, to):
        return self.peer(next(name for name, info in WORKERS.items() if to in (name, info.id)))

    def peer(self, name):
        # One that was lost must be dialled again.
        is_met = frozenset((self.name, name)) in self.world.met and name not in self.lost
        path = SimpleNamespace(closed=False) if is_met else None
        lost = ConnectionError("dead") if name in self.lost else None
        return SimpleNamespace(name=name, outgoing=path, lost=lost)

    def notify(self, peer, service, header, rides=False):
        if self.name == "r":
            if not self.world.words:
                self.world.die(self)
                return
            self.world.words -= 1
        is_cut = frozenset((self.name, peer.name)) in self.world.cuts
        if peer.outgoing is None and (is_cut or not self.world.nodes[peer.name].is_alive):
            raise ConnectionError("dead or cut off")
        if is_cut:
            return
        self.world.met.add(frozenset((self.name, peer.name)))
        self.world.mail.setdefault((self.name, peer.name), []).append((service, header))

    def ask_service(self, to, service, header):
        """The root asks the home, and dies with the answer on its way if that was its last word."""
        home = self.find(to).name
        self.notify(self.find(to), service, header)
        if not self.world.words:
            self.world.die(self)
        if not self.is_alive or home in self.lost or not self.world.mail.get((self.name, home)):
            raise ConnectionError("dead or cut off")
        self.world.deliver(self.name, home)

    @property
    def context(self):
        return self.contexts.find(CONTEXT)

    @property
    def has_gradients(self):
        takes_part = self.context is not None and self.local_pass is not None
        return takes_part and self.local_pass.outcome is True


class World:
    """Some workers at the end of a pass; `moves` is what may happen next.

    The root dies once it has sent so many `words`; two that are `cut_off` can't reach each other.
    """

    def __init__(self, shape, succeeded, mortals, words=ALL_WORDS, cut_off=None):
        calls, partners = SHAPES[shape]
        self.words, self.cuts, self.breaking = words, set(), None
        self.met, self.mail, self.mortals = {frozenset(call) for call in calls}, {}, mortals
        if cut_off:
            self.cut(cut_off)
        self.nodes = {name: Node(self, name) for name in WORKERS if name in "".join(calls)}
        self.nodes["h"].contexts.new(CONTEXT)
        for caller, callee in calls:
            self.nodes[callee].contexts.open(CONTEXT, WORKERS[caller])
            self.nodes[caller].context.meet(WORKERS[callee])
        for name in partners:
            self.nodes[name].local_pass = self.nodes[name].context.passes[PASS] = LocalPass()
        root = self.nodes["r"]
        if succeeded:
            root.commit.commit(root.context, PASS, partners)
        else:
            root.commit.abort(root.context, PASS)

    def living(self):
        return [node for node in self.nodes.values() if node.is_alive]

    def moves(self):
        for (frm, to), mail in self.mail.items():
            if mail and self.nodes[to].is_alive and frm not in self.nodes[to].lost:
                yield partial(self.deliver, frm, to)
        for node in self.living():
            yield from [partial(self.run, node, index) for index in range(len(node.tasks))]
            for name, other in self.nodes.items():
                pair = frozenset((node.name, name))
                is_gone = not other.is_alive or pair in self.cuts
                if is_gone and name not in node.lost and pair in self.met:
                    yield partial(self.notice, node, name)
            if node.name in self.mortals:
                yield partial(self.die, node)
        if self.breaking:
            yield partial(self.cut, self.breaking)

    def deliver(self, frm, to):
        service, header = self.mail[frm, to].pop(0)
        request = SimpleNamespace(header=header, frm=WORKERS[frm], reply=lambda: None)
        self.nodes[to].services[service](request)

    def run(self, node, index):
        node.tasks.pop(index)()

    def notice(self, node, name):
        node.lost.add(name)
        self.mail.pop((name, node.name), None)
        for finish in [each(WORKERS[name], ConnectionError("dead")) for each in node.callbacks]:
            finish()

    def die(self, node):
        node.is_alive = False
        self.mortals = self.mortals.replace(node.name, "")

    def lose_the_root(self, *order):
        """The root dies, y asks the home how its pass ended, and words arrive in that order."""
        home, y = self.nodes["h"], self.nodes["y"]
        self.die(self.nodes["r"])
        self.notice(y, "r")
        self.notice(home, "r")
        self.run(y, 0)
        for frm, to in order:
            while home.tasks:
                self.run(home, 0)
            self.deliver(frm, to)

    def cut(self, pair):
        """The network between two workers breaks; both live."""
        self.breaking = None
        self.cuts.add(frozenset(pair))
        for way in (pair, pair[::-1]):
            self.mail.pop(tuple(way), None)

    def check_what_shows(self):
        """At no time has one worker the gradients where another knows that it gets none."""
        known = [x for x in self.living() if x.context is not None and x.local_pass is not None]
        assert not {True, False} <= {node.local_pass.outcome for node in known}

    def check(self):
        """At rest nobody waits; all have the gradients or none, and all the context or none."""
        living = self.living()
        assert not any(node.context is not None and node.context.passes for node in living)
        assert len({node.has_gradients for node in living if node.local_pass is not None}) <= 1
        assert len({node.context is None for node in living}) == 1
        assert self.nodes["h"].is_alive or all(node.context is None for node in living)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("succeeded", [True, False])
def test_whatever_the_order_all_or_none_have_the_gradients(shape, succeeded):
    for seed in range(amount(400, 20_000)):
        dice = random.Random(seed)
        mortals = dice.choice(["r", "rx", "ry", "rh", "rxy"])
        world = World(shape, succeeded, mortals, dice.choice([0, 1, 2, 3, ALL_WORDS]))
        try:
            while moves := list(world.moves()):
                dice.choice(moves)()
                world.check_what_shows()
            world.check()
        except AssertionError as error:
            error.add_note(f"seed={seed}")
            raise


def test_the_home_gives_a_context_up_with_those_who_heard_that_a_pass_failed_and_succeeded():
    # The root can't reach the home, which would have heard of the success before all others.
    world = World("chain", True, "r", cut_off="rh")
    nodes = world.nodes
    # The home decides that it failed, and only x hears of the success.
    world.lose_the_root("yh", "hy", "yx", "rx")
    assert nodes["x"].context is None
    world.mortals = ""
    while moves := list(world.moves()):
        moves[0]()
    world.check()
    assert all(node.context is None for node in world.living())


def test_the_home_hears_that_a_context_was_released_though_the_one_who_did_so_dies():
    world = World("long", True, "r", words=4, cut_off="rh")
    nodes = world.nodes
    # The home decides that it failed, and only x hears of the success.
    world.lose_the_root("yh", "rx", "hy", "yx")
    assert nodes["x"].context is None
    world.deliver("x", "y")
    world.die(nodes["x"])
    while moves := list(world.moves()):
        moves[0]()
    world.check()
    assert nodes["h"].context is None


def test_the_home_hears_of_a_commit_from_those_who_heard_of_it_after_the_root_was_lost():
    world = World("long", True, "r", words=4, cut_off="rh")
    nodes = world.nodes
    world.die(nodes["r"])
    world.deliver("r", "y")
    world.notice(nodes["y"], "r")
    world.die(nodes["y"])
    # Only z has heard of the success when x asks the home, which decides that it failed.
    world.notice(nodes["h"], "r")
    world.notice(nodes["x"], "r")
    world.notice(nodes["x"], "y")
    world.deliver("y", "z")
    while moves := list(world.moves()):
        moves[0]()
    world.check()


def test_the_home_gives_up_a_pass_whose_root_died_with_all_who_knew_it():
    world = World("back", True, "rxy", words=0)
    nodes = world.nodes
    for name in "xy":
        world.die(nodes[name])
    while moves := list(world.moves()):
        moves[0]()
    world.check()
    assert nodes["h"].local_pass.outcome is False


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("succeeded", [True, False])
def test_after_a_cut_between_two_workers_all_hear_how_the_pass_ended(shape, succeeded):
    for seed in range(amount(200, 20_000)):
        dice = random.Random(seed)
        pair = dice.choice(["rx", "ry", "xy"])
        if dice.random() < 0.5:
            world = World(shape, succeeded, "", cut_off=pair)
        else:
            world = World(shape, succeeded, "")
            world.breaking = pair
        while moves := list(world.moves()):
            dice.choice(moves)()
        living = world.living()
        outcomes = {node.local_pass.outcome for node in living if node.local_pass is not None}
        assert outcomes == {succeeded}, f"seed={seed}"
        assert all(node.context is not None for node in living), f"seed={seed}"


@pytest.mark.parametrize(("context_id", "pass_id"), [(CONTEXT, PASS + 1), (CONTEXT + 1, PASS)])
def test_a_root_that_does_not_know_a_pass_says_that_it_failed(context_id, pass_id):
    """One that came back, or has released the context, is asked by the home."""
    world = World("all", True, "")
    request = SimpleNamespace(header=[context_id, pass_id], frm=WORKERS["h"])
    world.nodes["r"].services[IN_DOUBT](request)
    assert world.mail["r", "h"][-1] == (OUTCOME, [context_id, pass_id, False, []])


def test_a_root_whose_pass_still_runs_does_not_say_how_it_ended():
    world = World("all", True, "")
    root, sent = world.nodes["r"], len(world.mail["r", "h"])
    root.context.passes[PASS + 1] = LocalPass()
    root.services[IN_DOUBT](SimpleNamespace(header=[CONTEXT, PASS + 1], frm=WORKERS["h"]))
    assert len(world.mail["r", "h"]) == sent
