"""A link on which nothing passes any more although nobody closed it, over TCP and over TLS.

And two that look like one: a link that is slow, and one over which nobody has anything to say.
"""

import collections
import contextlib

import numpy as np
import pytest
from tests.rpc import simulated
from tests.rpc.connected import mint_cluster
from tests.rpc.inside import grow_impatient, ping_often, sleepers
from tests.rpc.neighbours import eventually, neighbours
from tests.rpc.proxy import Proxy

from telegrad.errors import CallTimeout, WorkerLost
from telegrad.rpc.options import Options
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.startup import start_worker
from telegrad.rpc.transport.address import parse_address
from telegrad.rpc.transport.pending_connection import Opening
from telegrad.rpc.wire.frames import PING


@contextlib.contextmanager
def through_proxy(scheme, directory, **options):
    """Yield (caller, callee, proxy): the caller's connections go through the proxy.

    Over plain TCP the handshake would refuse it, as it does every relay: so the ends of a
    connection are left out of it here, and the proxy stands for a wire that can be cut.
    """
    chosen = Options(unix_sockets=False, **options)
    key, credentials = ClusterKey.fresh(), {"a": None, "b": None}
    if scheme == "tls":
        who = mint_cluster(directory / "cluster", "a", "b")
        key, credentials = who["a"].key, {name: who[name].credentials for name in who}
    workers = []
    bare = pytest.MonkeyPatch()
    bare.setattr(Opening, "_ends", lambda self: None)
    try:
        for number, name in enumerate("ab"):
            address = f"{scheme}://127.0.0.1:0"
            workers.append(start_worker(name, number, address, key, chosen, credentials[name]))
        a, b = workers
        there = parse_address(b.address)
        with Proxy((there.host, there.port)) as proxy:
            a.add_peer(b.info, f"{scheme}://127.0.0.1:{proxy.port}")
            b.add_peer(a.info, a.address)
            yield a, b, proxy
    finally:
        for worker in workers:
            worker.close()
        bare.undo()


@pytest.fixture(params=["tcp", "tls"])
def scheme(request):
    return request.param


def test_calls_over_a_half_open_link_fail_by_heartbeat_and_work_again_when_it_heals(
    scheme, tmp_path
):
    with through_proxy(scheme, tmp_path, lost_after=60.0) as (a, b, proxy):
        lost = []
        b.on_worker_lost(lambda who, error: lost.append((who.name, str(error))))
        assert a.rpc_sync("b", simulated.who) == "b"
        open_call = a.rpc_async("b", simulated.never)
        proxy.cut()
        asked = a.rpc_async("b", simulated.who)
        # Only now: they need not meet in half a second.
        for each in (a, b):
            grow_impatient(each, 0.5)
        with pytest.raises(WorkerLost, match="worker 'b' was lost: nothing was heard for"):
            asked.wait()
        with pytest.raises(WorkerLost, match="worker 'b'"):
            open_call.wait()
        # The callee finds out as well, by itself: what the caller held there can go.
        assert eventually(lambda: bool(lost))
        assert lost[0][0] == "a"
        assert "nothing was heard for" in lost[0][1]
        proxy.heal()
        assert eventually(lambda: _answers(a))


def _answers(worker):
    try:
        return worker.rpc_sync("b", simulated.who, timeout=2) == "b"
    except (WorkerLost, CallTimeout):
        return False


def test_a_calls_own_deadline_comes_first_where_it_is_shorter(scheme, tmp_path):
    with through_proxy(scheme, tmp_path, lost_after=300.0) as (a, _, proxy):
        assert a.rpc_sync("b", simulated.who) == "b"
        proxy.cut()
        with pytest.raises(CallTimeout, match="did not answer 'who'"):
            a.rpc_sync("b", simulated.who, timeout=0.2)
        # Announced: nothing of it was sent.
        large = np.ones(16 << 17)
        with pytest.raises(CallTimeout, match="did not take 'len'"):
            a.rpc_sync("b", len, (large,), timeout=0.2)
        # More than all buffers on the way hold, so that the send itself gets stuck.
        taken = True
        for _ in range(32):
            with pytest.raises(CallTimeout, match=r"did not (answer|take) 'len'") as caught:
                a.rpc_sync("b", len, (large[:125_000],), timeout=0.05)
            taken = "answer" in str(caught.value)
            if not taken:
                break
        assert not taken
        with pytest.raises(CallTimeout, match="did not take 'who'"):
            a.rpc_sync("b", simulated.who, timeout=0.2)
        proxy.heal()
        assert a.rpc_sync("b", simulated.who) == "b"
        assert a.rpc_sync("b", len, (large,)) == 16 << 17


def test_dialling_into_a_half_open_link_fails_in_time(scheme, tmp_path):
    with through_proxy(scheme, tmp_path, lost_after=0.5) as (a, _, proxy):
        proxy.cut()
        with pytest.raises(WorkerLost, match="worker 'b' was lost"):
            a.rpc_sync("b", simulated.who)
        proxy.heal()
        assert eventually(lambda: _answers(a))


def test_a_slow_link_is_not_taken_for_a_dead_one(scheme, tmp_path):
    with through_proxy(scheme, tmp_path, lost_after=4.0) as (a, _, proxy):
        assert a.rpc_sync("b", simulated.who) == "b"
        # 2 MB take more than five seconds: no frame ends for longer than the peer may be silent.
        proxy.slow_down(0.16)
        assert a.rpc_sync("b", len, (np.ones(2 << 17),)) == 2 << 17


def counting(worker, pings):
    """Return what receives the worker's frames, and counts the pings among them."""
    receive = worker.receive

    def count(endpoint, frame):
        pings[worker.name] += frame.kind == PING
        return receive(endpoint, frame)

    return count


def test_idle_workers_are_not_taken_for_lost():
    lost = []
    with neighbours("a", "busy", "idle") as workers:
        for worker in workers:
            worker.on_worker_lost(lambda who, error: lost.append((who.name, str(error))))
        a, _, idle = workers
        pings = collections.Counter()
        for worker in (a, idle):
            worker.receive = counting(worker, pings)
        assert a.rpc_sync("idle", simulated.who) == "idle"
        busy = a.rpc_async("busy", simulated.wait_for_gate)
        assert eventually(lambda: sleepers(simulated.GATE[-1]) > 0)
        for worker in workers:
            ping_often(worker, 0.05)
        # Several times as often as the others need not to be given up.
        assert eventually(lambda: min(pings[worker.name] for worker in (a, idle)) > 20)
        assert lost == []
        assert a.rpc_sync("idle", simulated.who) == "idle"
        a.rpc_sync("busy", simulated.open_gate)
        assert busy.wait() == "open"
