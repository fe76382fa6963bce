"""A worker that listens nowhere: it dials the others, and they call it over what it opened."""

import contextlib
import operator
import threading

import numpy as np
import pytest
from tests.rpc import simulated
from tests.rpc.neighbours import eventually, neighbours

from telegrad.errors import CallTimeout, Refused, Unreachable, UsageError, WorkerLost
from telegrad.rpc.current import current_worker
from telegrad.rpc.options import Options
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.startup import begin_worker, start_worker
from telegrad.testing.simulation import Simulation

QUICK = Options(lost_after=0.5)


@pytest.fixture(params=[False, True], ids=["unix", "tcp"])
def pair(request):
    """Yield a, which listens, and b, which does not."""
    with neighbours("a", "b", quiet=["b"], tcp=request.param) as workers:
        yield workers


def call_back(to, depth):
    """Call from inside of a handler, to and fro."""
    worker = current_worker()
    return [
        worker.name,
        *(worker.rpc_sync(to, call_back, (worker.name, depth - 1)) if depth else []),
    ]


def test_it_has_no_address_and_no_listener(pair):
    _, b = pair
    assert b.address == ""
    threads = {each.name for each in threading.enumerate()}
    assert "telegrad-listener-a" in threads
    assert "telegrad-listener-b" not in threads


def test_it_calls_and_is_called(pair):
    a, b = pair
    assert b.rpc_sync("a", simulated.who) == "a"
    assert a.rpc_sync("b", simulated.who) == "b"


def test_it_is_called_before_it_called_anyone(pair):
    a, _ = pair
    assert a.rpc_sync("b", operator.add, (40, 2)) == 42


def test_all_goes_over_one_connection(pair):
    a, b = pair
    a.rpc_sync("b", simulated.who)
    b.rpc_sync("a", simulated.who)
    assert a.peers.get("b").outgoing is None
    assert a.peers.get("b").greeted_path is not None
    assert b.peers.get("a").incoming is None


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_arrays_cross_both_ways(pair, size):
    a, b = pair
    sent = np.arange(size, dtype=np.float64)
    for caller, callee in ((a, "b"), (b, "a")):
        assert np.array_equal(caller.rpc_sync(callee, np.negative, (sent,)), -sent)


@pytest.mark.parametrize("depth", [1, 7, 40])
def test_calls_nest_to_and_fro(pair, depth):
    a, b = pair
    assert a.rpc_sync("b", call_back, ("a", depth)) == [*"ba" * depth][: depth + 1]
    assert b.rpc_sync("a", call_back, ("b", depth)) == [*"ab" * depth][: depth + 1]


def test_both_sides_call_at_once_from_many_threads(pair):
    failures = []

    def work(worker, to):
        try:
            for number in range(100):
                assert worker.rpc_sync(to, operator.add, (number, 1)) == number + 1
                assert worker.rpc_async(to, operator.neg, (number,)).wait() == -number
        except BaseException as error:
            failures.append(error)

    threads = [
        threading.Thread(target=work, args=arguments)
        for arguments in [(pair[0], "b"), (pair[1], "a")] * 4
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_references_to_its_values_are_used_and_freed(pair):
    a, b = pair
    reference = a.remote("b", simulated.Counter, (5,))
    assert reference.rpc_sync().add(2) == 7
    assert b.references.counts()["owned"] == 1
    del reference
    assert eventually(lambda: not b.references.counts()["owned"])


def test_a_third_worker_reaches_it_by_a_reference():
    with neighbours("a", "b", "c", quiet=["b"]) as (a, _, _):
        reference = a.remote("b", simulated.Counter, (5,))
        assert a.rpc_sync("c", simulated.add_to, (reference, 2)) == 7


def test_two_that_listen_nowhere_can_t_call_each_other():
    with neighbours("a", "b", "c", quiet=["b", "c"]) as (a, b, _):
        assert a.rpc_sync("c", simulated.who) == "c"
        with pytest.raises(
            Unreachable, match=r"'c' can't be called from 'b': neither of them"
        ) as e:
            b.rpc_sync("c", simulated.who)
        assert "listen=False" in str(e.value)


def test_one_that_ends_is_lost_at_once_and_its_call_fails():
    with neighbours("a", "b", quiet=["b"]) as (a, b):
        call = a.rpc_async("b", simulated.never)
        assert eventually(lambda: b.peers.get("a").outgoing is not None)
        b.close()
        with pytest.raises(WorkerLost, match="'b' was lost"):
            call.wait()
        with pytest.raises(WorkerLost, match=r"'b' was lost: .*it listens nowhere, and is called"):
            a.rpc_sync("b", simulated.who)


def test_one_that_never_dials_is_lost_after_a_while():
    key = ClusterKey.fresh()
    with (
        contextlib.closing(start_worker("a", 0, "tcp://127.0.0.1:0", key, QUICK)) as a,
        contextlib.closing(start_worker("b", 1, "", key, Options(listen=False))) as b,
    ):
        a.add_peer(b.info, b.address)
        with pytest.raises(WorkerLost, match=r"it did not dial within 0\.5 s; it listens nowhere"):
            a.rpc_sync("b", simulated.who)
        with pytest.raises(CallTimeout, match="it listens nowhere, and has not dialled yet"):
            a.rpc_sync("b", simulated.who, timeout=0.05)


def test_one_whose_address_is_noted_late_is_not_taken_for_one_that_listens_nowhere():
    key = ClusterKey.fresh()
    with (
        contextlib.closing(start_worker("a", 0, "tcp://127.0.0.1:0", key)) as a,
        contextlib.closing(start_worker("b", 1, "tcp://127.0.0.1:0", key)) as b,
    ):
        wait = a.host.wait

        def wait_and_hear(pause, seconds):
            # As from another thread, which was held up between the peer's name and its address.
            a.add_peer(b.info, b.address)
            wait(pause, seconds)

        a.add_peer(b.info, "")
        a.host.wait = wait_and_hear
        assert a.rpc_sync("b", simulated.who) == "b"


def test_a_connection_that_broke_is_opened_again_without_a_call():
    with neighbours("a", "b", quiet=["b"]) as (a, b):
        assert a.rpc_sync("b", simulated.who) == "b"
        first = b.peers.get("a").outgoing
        first.connection.shutdown()
        assert eventually(lambda: b.peers.get("a").outgoing not in (None, first))
        assert eventually(lambda: a.peers.get("b").lost is None)
        assert a.rpc_sync("b", simulated.who) == "b"


def test_a_worker_that_comes_later_is_dialled():
    key = ClusterKey.fresh()
    with contextlib.ExitStack() as stack:
        a, b, c = (
            stack.enter_context(contextlib.closing(start_worker(name, number, where, key, options)))
            for number, (name, where, options) in enumerate(
                [
                    ("a", "tcp://127.0.0.1:0", Options()),
                    ("b", "", Options(listen=False)),
                    ("c", "tcp://127.0.0.1:0", Options()),
                ]
            )
        )
        a.add_peer(b.info, b.address)
        b.add_peer(a.info, a.address)
        assert a.rpc_sync("b", simulated.who) == "b"
        c.add_peer(b.info, b.address)
        b.add_peer(c.info, c.address)
        assert c.rpc_sync("b", simulated.who) == "b"


def test_in_strict_mode_only_what_it_exposes_is_served():
    with neighbours("a", "b", quiet=["b"], options=Options(strict=True)) as (a, _):
        assert a.rpc_sync("b", simulated.shown, ([1, 2, 3],)) == 3
        with pytest.raises(Refused):
            a.rpc_sync("b", simulated.who)


def test_a_worker_at_an_address_has_to_listen():
    with pytest.raises(UsageError, match="only a worker that joins by init_rpc may listen nowhere"):
        begin_worker("a", 0, ClusterKey.fresh(), Options(listen=False), address="tcp://127.0.0.1:0")


@pytest.mark.parametrize("seed", range(20))
def test_on_a_simulated_network_it_is_met_and_met_again(seed):
    options = {"b": Options(listen=False, lost_after=1.0), "a": Options(lost_after=1.0)}
    with Simulation(["a", "b"], seed=seed, options=options) as simulation:
        a = simulation.worker("a")

        def ask():
            return a.rpc_sync("b", simulated.who)

        assert simulation.run("a", ask) == "b"
        simulation.cut("a", "b")
        with pytest.raises(WorkerLost):
            simulation.run("a", ask)
        simulation.heal("a", "b")
        simulation.settle(5.0)
        assert simulation.run("a", ask) == "b"
