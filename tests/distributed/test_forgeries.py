"""Ids of other types, from a peer that has the key: they are kept out of what is looked through."""

import msgspec
import pytest
from tests.rpc import simulated
from tests.rpc.neighbours import eventually, neighbours

from telegrad.distributed.worker_autograd import attach_autograd, autograd_of
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
