"""Threads that share what can be shared, all at once: leaves, graphs, hooks, a worker, a cluster.

Where Python runs without its lock they run in parallel; with it they take turns, which finds less.
"""

import contextvars
import itertools
import os
import subprocess
import sys
import threading
import weakref
from contextlib import suppress

import numpy as np
import pytest
from tests.interpreter import IS_LOCKED
from tests.rpc.neighbours import eventually, neighbours

import telegrad as tg
from telegrad.distributed import LocalCluster, rpc
from telegrad.distributed import autograd as dist_autograd
from telegrad.distributed.contexts.context import ProgramPoint
from telegrad.errors import ContextError, GraphFreedError, PassAborted
from telegrad.rpc.transport.segments import SMALLEST_SEGMENT

THREADS = 6
ROUNDS = 150


def side_by_side(work, rounds=ROUNDS, threads=THREADS):
    """Run ``work(thread, round)`` on several threads, each round begun together."""
    failures = []
    barrier = threading.Barrier(threads)

    def run(number):
        try:
            for at in range(rounds):
                barrier.wait(60)
                work(number, at)
        except BaseException as error:
            failures.append(error)
            barrier.abort()

    started = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join(120)
    assert not any(thread.is_alive() for thread in started), "a thread hangs"
    broken = [each for each in failures if not isinstance(each, threading.BrokenBarrierError)]
    if broken:
        raise broken[0]


IMPORT_ALL = """
import importlib, pkgutil, sys, telegrad
for module in pkgutil.walk_packages(telegrad.__path__, "telegrad."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(sys._is_gil_enabled())
"""


@pytest.mark.skipif(IS_LOCKED, reason="needs a Python without its lock")
def test_nothing_that_telegrad_imports_turns_the_lock_on():
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


# One process.


def test_gradients_of_many_passes_add_up_in_a_shared_leaf():
    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)

    def work(thread, at):
        (x * float(thread + 1)).sum().backward()

    side_by_side(work)
    total = ROUNDS * sum(range(1, THREADS + 1))
    assert x.grad.tolist() == [float(total)] * 3


def test_first_gradients_of_a_fresh_leaf_are_all_kept():
    leaves = [tg.tensor([1.0], requires_grad=True) for _ in range(ROUNDS)]
    side_by_side(lambda thread, at: (leaves[at] * 2.0).sum().backward())
    assert {leaf.grad.item() for leaf in leaves} == {2.0 * THREADS}


def test_a_kept_graph_serves_passes_of_all_threads():
    rng = np.random.default_rng(0)
    x = tg.tensor(rng.normal(size=(40, 40)), requires_grad=True)
    y = (tg.tanh(x @ x) * x).sum()
    (expected,) = tg.autograd.grad(y, x, retain_graph=True)
    found = [None] * THREADS

    def work(thread, at):
        (found[thread],) = tg.autograd.grad(y, x, retain_graph=True)
        assert (found[thread].numpy() == expected.numpy()).all()

    side_by_side(work, 40)
    arrays = [each.array for each in found]
    assert not any(np.shares_memory(a, b) for a, b in itertools.combinations(arrays, 2))


def test_a_graph_that_one_pass_frees_gives_others_the_gradient_or_an_error():
    leaves = [tg.tensor([0.5] * 4, requires_grad=True) for _ in range(ROUNDS)]
    losses = [(tg.exp(leaf) * leaf).sum() for leaf in leaves]
    succeeded = [[] for _ in leaves]

    def work(thread, at):
        try:
            losses[at].backward()
        except GraphFreedError:
            return
        succeeded[at].append(thread)

    side_by_side(work)
    single = tg.tensor([0.5] * 4, requires_grad=True)
    (tg.exp(single) * single).sum().backward()
    for leaf, passes in zip(leaves, succeeded):
        assert passes
        np.testing.assert_allclose(leaf.grad.numpy(), len(passes) * single.grad.numpy())


def test_hooks_that_threads_hang_on_one_tensor_all_run():
    leaves = [tg.tensor([1.0], requires_grad=True) for _ in range(ROUNDS)]
    values = [leaf * 2.0 for leaf in leaves]
    seen = [[] for _ in leaves]

    def work(thread, at):
        leaves[at].register_hook(lambda g: seen[at].append(("leaf", thread)))
        values[at].register_hook(lambda g: seen[at].append(("value", thread)))

    side_by_side(work)
    for value, names in zip(values, seen):
        value.sum().backward()
        assert len(names) == len(set(names)) == 2 * THREADS


def test_passes_add_up_where_a_gradient_is_retained():
    x = tg.tensor([1.0], requires_grad=True)
    y = x * 3.0
    y.retain_grad()
    side_by_side(lambda thread, at: (y * 2.0).sum().backward(retain_graph=True))
    assert y.grad.item() == 2.0 * ROUNDS * THREADS


def test_what_a_forward_pass_saved_is_not_changed_by_a_copy_into_it():
    if IS_LOCKED:
        pytest.skip("with the lock, copy_ reuses memory that only the tensor holds")
    w = tg.tensor(np.ones(2000), requires_grad=True)

    def work(thread, at):
        if thread == 0:
            with tg.no_grad():
                w.copy_(tg.full((2000,), float(at)))
            return
        loss = (w * w).sum()
        (gradient,) = tg.autograd.grad(loss, w)
        values = np.unique(gradient.numpy())
        assert len(values) == 1, "seen half done"
        assert loss.item() == 2000 * (values[0] / 2) ** 2

    side_by_side(work)


def test_what_a_forward_pass_saved_is_not_changed_by_a_step():
    if IS_LOCKED:
        pytest.skip("with the lock, a step reuses memory that only the parameter holds")
    w = tg.tensor(np.full(2000, 1024.0), requires_grad=True)
    descent = tg.optim.SGD([w], lr=1.0)

    def work(thread, at):
        if thread == 0:
            descent.step(gradients={w: tg.ones(2000, dtype=w.dtype)})
            return
        loss = (w * w).sum()
        (gradient,) = tg.autograd.grad(loss, w)
        values = np.unique(gradient.numpy())
        assert len(values) == 1, "seen half done"
        assert loss.item() == 2000 * (values[0] / 2) ** 2

    side_by_side(work)
    assert (w.array == 1024.0 - ROUNDS).all()


def test_each_message_of_a_shared_point_of_the_program_has_a_path_of_its_own():
    point = ProgramPoint(None, (7,))
    paths = [[] for _ in range(THREADS)]
    side_by_side(lambda thread, at: paths[thread].extend(point.step() for _ in range(50)))
    made = [path for each in paths for path in each]
    assert sorted(made) == [(7, n + 1) for n in range(len(made))]


# Workers of one process.


def echo(array):
    return array


def test_calls_to_oneself_are_all_answered():
    with neighbours("a") as (a,):

        def work(thread, at):
            for n in range(20):
                assert a.rpc_sync("a", abs, (-n,)) == n
                assert a.rpc_async("a", abs, (-n,)).wait() == n

        side_by_side(work, 20)


def test_answers_of_links_that_many_threads_share_are_not_mixed_up():
    with neighbours("a", "b", "c") as workers:
        pairs = [(x, y.name) for x in workers for y in workers if x is not y]

        def work(thread, at):
            worker, to = pairs[thread]
            base = (thread << 20) + at
            calls = [worker.rpc_async(to, abs, (-base - n,)) for n in range(10)]
            assert worker.rpc_sync(to, abs, (-base,)) == base
            assert [call.wait() for call in calls] == [base + n for n in range(10)]

        side_by_side(work, 60)


def test_large_arrays_keep_their_numbers_while_others_come():
    with neighbours("a", "b") as (a, b):
        kept = [[] for _ in range(THREADS)]

        def work(thread, at):
            worker, to = ((a, "b"), (b, "a"))[thread % 2]
            number = thread * 1000 + at
            came = worker.rpc_sync(to, echo, (np.full(1 << 16, float(number)),))
            kept[thread] = [*kept[thread][-2:], (number, came)]
            for wanted, array in kept[thread]:
                assert (array == wanted).all()

        side_by_side(work, 30)


class Value:
    """Something that can be watched."""


def test_values_go_when_handles_that_threads_passed_on_are_gone():
    with neighbours("a", "b") as (a, b):
        made = [[] for _ in range(THREADS)]

        def work(thread, at):
            worker, to = ((a, "b"), (b, "a"))[thread % 2]
            value = Value()
            made[thread].append(weakref.ref(value))
            reference = worker.make_rref(value)
            back = worker.rpc_sync(to, echo, ([reference, reference],))
            assert all(each.local_value() is value for each in back)

        side_by_side(work, 40)
        for worker in (a, b):
            assert eventually(lambda w=worker: not any(w.references.counts().values()))
        assert eventually(lambda: not any(ref() for each in made for ref in each))


# A cluster.

WEIGHT = tg.tensor(np.linspace(-1.0, 1.0, 12).reshape(3, 4), requires_grad=True)


def weight():
    return WEIGHT


def layer(x, w):
    return tg.tanh(x @ w)


@pytest.mark.processes
def test_contexts_of_many_threads_each_have_their_own_gradients():
    with LocalCluster(["ps"]):
        reference = rpc.remote("ps", weight)

        def work(thread, at):
            x = tg.tensor(np.full((2, 3), 0.1 * (thread + 1)), requires_grad=True)
            with dist_autograd.context() as context_id:
                y = rpc.rpc_sync("ps", remote_layer, (x, reference))
                dist_autograd.backward(context_id, [(y * y).sum()])
                found = dist_autograd.get_gradients(context_id)[x].numpy()
            twin = tg.tensor(x.array, requires_grad=True)
            y = layer(twin, WEIGHT.detach())
            (y * y).sum().backward()
            assert (found == twin.grad.numpy()).all()

        side_by_side(work, 25)


def remote_layer(x, reference):
    return layer(x, reference.local_value())


@pytest.mark.processes
def test_threads_that_go_on_from_one_context_are_all_recorded():
    with LocalCluster(["ps"]), dist_autograd.context() as context_id:
        x = tg.tensor([1.0, 2.0], requires_grad=True)
        results = [None] * THREADS
        contexts = [contextvars.copy_context() for _ in range(THREADS)]

        def work(thread, at):
            y = contexts[thread].run(rpc.rpc_sync, "ps", np.multiply, (x, float(thread + 1)))
            results[thread] = y if results[thread] is None else results[thread] + y

        side_by_side(work, 10)
        loss = results[0]
        for each in results[1:]:
            loss = loss + each
        dist_autograd.backward(context_id, [loss.sum()])
        found = dist_autograd.get_gradients(context_id)[x].tolist()
        assert found == [10.0 * sum(range(1, THREADS + 1))] * 2


TRAINERS = ("t0", "t1", "t2", "t3")
ROWS = -(-SMALLEST_SEGMENT // (3 * 8))
"""So many that three columns, and four, go through segments."""


def train(number, reference, rounds):
    """Run passes through the server, have it run its own, and make references to its values."""
    rng = np.random.default_rng(number)
    kept = []
    for at in range(rounds):
        x = tg.tensor(rng.normal(size=(ROWS, 3)), requires_grad=True)
        twin, w = tg.tensor(x.array, requires_grad=True), tg.tensor(WEIGHT.array.copy())
        w.requires_grad_()
        with dist_autograd.context() as context_id:
            y = rpc.rpc_sync("ps", remote_layer, (x, reference))
            dist_autograd.backward(context_id, [(y * y).sum()])
            here = dist_autograd.get_gradients(context_id)[x].numpy()
            there = rpc.rpc_sync("ps", gradient_of_weight, (context_id,)).numpy()
        z = layer(twin, w)
        (z * z).sum().backward()
        assert (here == twin.grad.numpy()).all()
        assert (there == w.grad.numpy()).all()
        rpc.rpc_sync("ps", add_to_gradient, (number + 1,))
        value = rpc.remote("ps", np.full, ((ROWS, 3), float(at)))
        kept = [*kept[-2:], (at, value, rpc.rpc_async("ps", echo, ([value, value],)).wait())]
        for wanted, mine, back in kept:
            for each in (mine, *back):
                assert (each.to_here() == wanted).all()


def gradient_of_weight(context_id):
    return dist_autograd.get_gradients(context_id)[WEIGHT]


def add_to_gradient(factor):
    """Run a pass of the server's own, into a leaf that all requests share."""
    (WEIGHT * float(factor)).sum().backward()


def whole_gradient():
    return WEIGHT.grad.numpy()


def leads_and_references():
    worker = rpc.current_worker()
    return len(worker.host.leads), sum(worker.references.counts().values())


@pytest.mark.processes
def test_one_server_runs_passes_segments_and_references_of_many_trainers_at_once():
    rounds = 10
    with LocalCluster(["ps", *TRAINERS]):
        _, before = rpc.rpc_sync("ps", leads_and_references)
        reference = rpc.remote("ps", weight)
        rpc.wait_all(
            [
                rpc.rpc_async(name, train, (number, reference, rounds))
                for number, name in enumerate(TRAINERS)
            ]
        )
        total = rounds * sum(range(1, len(TRAINERS) + 1))
        assert (rpc.rpc_sync("ps", whole_gradient) == total).all()
        leads, _ = rpc.rpc_sync("ps", leads_and_references)
        assert leads == (1 if IS_LOCKED else min(os.cpu_count(), len(TRAINERS) + 1))
        del reference
        assert eventually(lambda: rpc.rpc_sync("ps", leads_and_references)[1] == before)


def refused(x, reference):
    y = remote_layer(x, reference)
    y.register_hook(refuse)
    return y


def refuse(gradient):
    raise ZeroDivisionError("refused")


def run_if_it_lasts(context_id, loss):
    with suppress(PassAborted, ContextError):
        dist_autograd.backward(context_id, [loss])


@pytest.mark.processes
def test_passes_beside_others_that_fail_or_whose_context_ends_are_exact():
    with LocalCluster(["ps"]):
        reference = rpc.remote("ps", weight)

        def work(thread, at):
            what = (thread + at) % 3
            x = tg.tensor(np.full((2, 3), 0.1 * (thread + 1)), requires_grad=True)
            with dist_autograd.context() as context_id:
                y = rpc.rpc_sync("ps", refused if what == 1 else remote_layer, (x, reference))
                if what == 0:
                    dist_autograd.backward(context_id, [y.sum()])
                    found = dist_autograd.get_gradients(context_id)[x].numpy()
                    expected = (1 - y.detach().numpy() ** 2) @ WEIGHT.detach().numpy().T
                    np.testing.assert_allclose(found, expected)
                elif what == 1:
                    with pytest.raises(ZeroDivisionError, match="refused"):
                        dist_autograd.backward(context_id, [y.sum()])
                else:
                    cut = threading.Thread(target=run_if_it_lasts, args=(context_id, y.sum()))
                    cut.start()
            if what == 2:
                cut.join(60)
                assert not cut.is_alive()

        side_by_side(work, 9)


def relay(x, factor):
    return rpc.rpc_sync("other", np.multiply, (x, factor))


@pytest.mark.processes
def test_requests_of_one_pass_that_run_at_once_all_ask_on():
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    with LocalCluster(["ps", "other"]):
        for _ in range(3):
            with dist_autograd.context() as context_id:
                # So many that what leaves goes in many requests.
                calls = [rpc.rpc_async("ps", relay, (x, float(n))) for n in range(300)]
                loss = x * 0.0
                for call in calls:
                    loss = loss + call.wait()
                dist_autograd.backward(context_id, [loss.sum()])
                assert dist_autograd.get_gradients(context_id)[x].tolist() == [300 * 299 / 2] * 2
