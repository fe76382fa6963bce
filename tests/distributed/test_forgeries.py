"""Ids of other types, from a peer that has the key: they are kept out of what is looked through."""

import msgspec
import pytest
from tests.rpc import simulated
from tests.rpc.neighbours import eventually, neighbours

from telegrad.distributed.current import autograd_of
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.rpc.wire.frames import CALL, NOTICE, Frame


def call_with_a_level(_, mention):
    """A call outside of any context whose caller has entered a level."""
    extra = [0, 0, [], [], [mention], []]
    return CALL, ["tests.rpc.simulated:who", None, extra, [], 0, [], [], None]


def notice(context_id, service, *rest):
    return NOTICE, [service, [context_id, *rest], []]


@pytest.mark.parametrize(
    ("make", "forged"),
    [
        (call_with_a_level, (["x", 0, 0],)),
        (notice, ("autograd.outcome", "x", True, [])),
        (notice, ("autograd.in_doubt", "x")),
    ],
)
def test_the_loss_of_a_worker_is_noticed_after_forged_ids(make, forged):
    with neighbours("a", "b", "c") as (a, b, c):
        for worker in (a, b, c):
            attach_autograd(worker)
        lost = []
        b.on_worker_lost(lambda who, why: lost.append(who.name))
        context = autograd_of(b).contexts.open(a.next_id(), a.info)
        assert a.rpc_sync("b", simulated.who) == c.rpc_sync("b", simulated.who) == "b"
        kind, message = make(context.id, *forged)
        a.peers.get("b").outgoing.send(Frame(kind, 0, 1000, 0, msgspec.msgpack.encode(message)))
        if kind == NOTICE:
            assert eventually(lambda: a.peers.get("b").outgoing is None)
        # Twice: calls run on threads of their own.
        assert [a.rpc_sync("b", simulated.who) for _ in range(2)] == ["b", "b"]
        served = b.peers.get("a").incoming.serving
        assert eventually(lambda: not served)
        assert not context.outcomes
        assert not context.in_doubt
        assert not len(autograd_of(b).levels)
        c.close()
        assert eventually(lambda: lost[-1:] == ["c"])


def test_a_forged_list_of_who_missed_an_outcome_takes_no_threads():
    """One for each entry it took: 0.2 MB made 3000 threads."""
    with neighbours("a", "b", "c") as (a, b, c):
        for worker in (a, b, c):
            attach_autograd(worker)
        context = autograd_of(b).contexts.open(a.next_id(), a.info)
        assert a.rpc_sync("b", simulated.who) == "b"
        started = []
        real = b.host.start
        b.host.start = lambda task: started.append(task) or real(task)
        missed = [*(f"x{n}" for n in range(5000)), *range(100, 5000), *["c"] * 5000, *[2] * 5000]
        kind, message = notice(context.id, "autograd.outcome", a.next_id(), True, missed)
        a.peers.get("b").outgoing.send(Frame(kind, 0, 0, 0, msgspec.msgpack.encode(message)))
        assert [a.rpc_sync("b", simulated.who) for _ in range(2)] == ["b", "b"]
        assert eventually(lambda: bool(context.outcomes))
        assert len(started) < 10
