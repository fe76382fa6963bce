"""A worker that was killed is started again and comes back as another incarnation."""

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.rpc import simulated
from tests.rpc.neighbours import eventually, neighbours

from telegrad.distributed import rpc
from telegrad.errors import PeerError, WorkerLost
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.startup import start_worker
from telegrad.rpc.wire.frames import HELLO

ROLES = (("a", 0), ("b", 1), ("b", 1))
SCRIPT = """
import sys
from telegrad.distributed import rpc
rpc.init_rpc()
sys.stdin.read()
rpc.shutdown()
"""


class World:
    """Rank 0 in this process, and the others in processes of their own."""

    def __init__(self, port, key, names):
        self._environment = {
            **os.environ,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": str(len(names) + 1),
            "TELEGRAD_KEY_FILE": str(key),
        }
        self._ranks = {name: rank for rank, name in enumerate(names, 1)}
        self.processes = {name: self.start(name) for name in names}

    def start(self, name):
        return subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            env={
                **self._environment,
                "RANK": str(self._ranks[name]),
                "TELEGRAD_WORKER_NAME": name,
            },
            cwd=Path(__file__).parents[3],
            stdin=subprocess.PIPE,
        )

    def kill(self, name):
        os.kill(self.processes[name].pid, signal.SIGKILL)
        self.processes[name].communicate()

    def restart(self, name):
        self.processes[name] = self.start(name)

    def close(self):
        for process in self.processes.values():
            process.stdin.close()
        rpc.shutdown()
        for process in self.processes.values():
            try:
                # An interpreter takes its time to end where it hardly gets the processor.
                process.wait(60)
            finally:
                process.kill()
                process.wait()


@pytest.fixture
def world(tmp_path, monkeypatch):
    ClusterKey.fresh().save(tmp_path / "key")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    monkeypatch.setenv("TELEGRAD_KEY_FILE", str(tmp_path / "key"))
    world = World(port, tmp_path / "key", ["victim", "witness"])
    try:
        rpc.init_rpc("ps", rank=0, world_size=3)
        yield world
    finally:
        world.close()


def pid_of(name):
    """Return the process of a worker as this one sees it, None while it can't be reached."""
    try:
        return rpc.rpc_sync(name, os.getpid, timeout=5)
    except PeerError:
        return None


@pytest.mark.processes
def test_a_killed_worker_that_is_started_again_is_called_again_but_its_references_are_lost(world):
    worker = rpc.current_worker()
    theirs = rpc.remote("victim", simulated.Counter, (1,))
    assert theirs.rpc_sync().add(1) == 2
    rpc.rpc_sync("witness", simulated.keep, ("counter", theirs))
    # Once it has met the victim: one that ends while it proves the key looks as if it refused it.
    rpc.rpc_sync("witness", simulated.fetch_kept, ("counter",))
    rpc.rpc_sync("victim", simulated.keep, ("value", rpc.RRef("mine")))
    assert eventually(lambda: worker.references.counts()["owned"] == 1)
    before = rpc.get_worker_info("victim")
    under_way = rpc.rpc_async("victim", simulated.never)

    world.kill("victim")
    with pytest.raises(WorkerLost, match="worker 'victim' was lost"):
        under_way.wait()
    with pytest.raises(WorkerLost, match="victim"):
        theirs.to_here()
    # What only the lost worker still referred to is free.
    assert eventually(lambda: worker.references.counts()["owned"] == 0)

    world.restart("victim")
    new = world.processes["victim"].pid
    assert eventually(lambda: pid_of("victim") == new, 30)
    after = rpc.get_worker_info("victim")
    assert (after.name, after.id) == (before.name, before.id)
    assert after.incarnation != before.incarnation
    # Others learn of it, too.
    assert eventually(lambda: rpc.rpc_sync("witness", pid_of, ("victim",)) == new, 30)

    with pytest.raises(WorkerLost, match="victim"):
        theirs.to_here()
    with pytest.raises(WorkerLost, match="victim"):
        theirs.rpc_sync().add(1)
    with pytest.raises(WorkerLost, match="victim"):
        rpc.rpc_sync("witness", simulated.fetch_kept, ("counter",))
    again = rpc.remote("victim", simulated.Counter, (40,))
    assert again.rpc_sync().add(2) == 42


def test_news_of_another_incarnation_end_what_is_open_with_the_old_one():
    with neighbours("a", "b") as (a, b):
        lost = []
        a.on_worker_lost(lambda who, error: lost.append((who.name, str(error))))
        call = a.rpc_async("b", simulated.never)
        a.add_peer(WorkerInfo("b", 1, b.info.incarnation + 2), b.address)
        with pytest.raises(WorkerLost, match="worker 'b' was lost: it has started anew"):
            call.wait()
        assert eventually(lambda: lost == [("b", "worker 'b' was lost: it has started anew")])


def incarnation() -> int:
    return rpc.current_worker().info.incarnation


@pytest.fixture
def roles():
    """A worker, another, and one that comes in the other's place while that lives on."""
    key = ClusterKey.fresh()
    workers = [start_worker(name, id, "tcp://127.0.0.1:0", key) for name, id in ROLES]
    try:
        a, before, after = workers
        a.add_peer(before.info, before.address)
        before.add_peer(a.info, a.address)
        after.add_peer(a.info, a.address)
        assert a.rpc_sync("b", incarnation) == before.info.incarnation
        yield workers
    finally:
        for worker in workers:
            worker.close()


def test_one_in_whose_place_another_came_does_not_take_it_back(roles, caplog):
    """Its network was cut, say, and it was started again elsewhere while it lived on."""
    a, before, after = roles
    assert before.rpc_sync("a", incarnation) == a.info.incarnation
    a.add_peer(after.info, after.address)
    under_way = a.rpc_async("b", simulated.never)
    assert eventually(lambda: before.peers.get("a").lost is not None)
    with pytest.raises(WorkerLost, match="worker 'a' was lost"):
        before.rpc_sync("a", incarnation)
    assert eventually(lambda: "in whose place another has come" in caplog.text)
    assert a.rpc_sync("b", incarnation) == after.info.incarnation
    assert not under_way.done(), "nothing was lost"


def test_late_news_of_one_in_whose_place_another_came_change_nothing(roles):
    a, before, after = roles
    a.add_peer(after.info, after.address)
    under_way = a.rpc_async("b", simulated.never)
    a.add_peer(before.info, before.address)
    assert a.rpc_sync("b", incarnation) == after.info.incarnation
    assert after.rpc_sync("a", incarnation) == a.info.incarnation
    assert not under_way.done(), "nothing was lost"


def test_one_in_whose_place_another_came_is_not_called_at_an_address_that_was_its_own(roles):
    a, before, after = roles
    # As long as the new one has not said where it listens.
    a.add_peer(after.info, before.address)
    with pytest.raises(WorkerLost, match="still the one in whose place another has come"):
        a.rpc_sync("b", incarnation)
    assert after.rpc_sync("a", incarnation) == a.info.incarnation
    assert a.rpc_sync("b", incarnation) == after.info.incarnation


def test_a_greeting_that_comes_after_another_took_the_place_does_not_take_it_back(roles):
    a, before, after = roles
    come, go_on = threading.Event(), threading.Event()
    receive = a.receive

    def hold_greeting(endpoint, frame):
        if frame.kind == HELLO and endpoint.peer.incarnation == before.info.incarnation:
            come.set()
            assert go_on.wait(20)
        return receive(endpoint, frame)

    a.receive = hold_greeting
    call = before.rpc_async("a", incarnation)
    assert come.wait(20)
    a.add_peer(after.info, after.address)
    assert after.rpc_sync("a", incarnation) == a.info.incarnation
    go_on.set()
    with pytest.raises(WorkerLost, match="worker 'a' was lost"):
        call.wait()
    assert after.rpc_sync("a", incarnation) == a.info.incarnation
    assert a.rpc_sync("b", incarnation) == after.info.incarnation


def test_one_that_came_back_elsewhere_unheard_is_found_after_a_call_that_failed():
    with neighbours("a", "b") as (a, b):
        # Whoever told the others that b came back had lost a at that moment.
        a.add_peer(b.info, "unix:///nowhere/b.sock")
        a.look_again = lambda: a.add_peer(b.info, b.address)
        with pytest.raises(WorkerLost, match="nowhere"):
            a.rpc_sync("b", min, ((1, 2),))
        assert eventually(lambda: a.peers.get("b").address == b.address)
        assert a.rpc_sync("b", min, ((1, 2),)) == 1
