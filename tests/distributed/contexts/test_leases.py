"""The end of a context: it goes everywhere, though a worker leaves, dies or is late."""

import contextlib
import contextvars
import gc
import weakref

import numpy as np
import pytest
from tests.distributed import handlers
from tests.distributed.simulated import IN_ORDER, frames_sent, on_workers
from tests.rpc.neighbours import eventually, neighbours

import telegrad as tg
from telegrad.autograd import forward_ad
from telegrad.distributed import autograd, rpc
from telegrad.distributed.contexts.context import CURRENT, ProgramPoint
from telegrad.distributed.current import autograd_of
from telegrad.distributed.passes.coordinator import PassCoordinator
from telegrad.distributed.passes.gradient_codec import GradientCodec
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.errors import ContextError, PassAborted, WorkerLost
from telegrad.rpc.calls.future import Future
from telegrad.testing.simulation import Simulation

NAMES = ("main", "b", "c", "d")


@pytest.fixture
def simulation():
    with Simulation(NAMES, seed=1, on_start=attach_autograd) as simulation:
        yield simulation


def x():
    return tg.tensor(np.array([5.0, 7.0]), requires_grad=True)


def contexts(simulation):
    """How many contexts each living worker has."""
    return {
        name: handlers.leftovers(simulation.worker(name))["contexts"]
        for name in NAMES
        if simulation.hosts[name].is_alive
    }


def open_and_stay(simulation, names, home="main"):
    """Leaves a context open on `home` that goes through all the names."""

    def program():
        autograd._new_context()
        handlers.through(names, x())

    # In a copy of the thread's variables, for the thread itself serves others afterwards.
    simulation.run(home, lambda: contextvars.copy_context().run(program))


def release_the_one():
    (context,) = autograd_of(rpc.current_worker()).contexts.all()
    autograd._release_context(context.id)


@on_workers(*NAMES)
def test_leaving_a_context_releases_it_on_workers_that_the_home_never_called(simulation):
    with autograd.context() as context_id:
        handlers.through(["b", "c", "d"], x())
        assert contexts(simulation) == dict.fromkeys(NAMES, 1)
        assert autograd._retrieve_context(context_id)._known_worker_ids() == {1}
    simulation.sleep(1)
    assert contexts(simulation) == dict.fromkeys(NAMES, 0)


def call_others(x, depth):
    """Calls every other worker, and has these do so, too."""
    me = rpc.get_worker_info().name
    if depth:
        calls = [rpc.rpc_async(name, call_others, (x, depth - 1)) for name in NAMES if name != me]
        rpc.wait_all(calls)


@on_workers(*NAMES, faults=IN_ORDER)
def test_where_all_called_all_each_hears_once_that_the_context_is_released(simulation):
    with autograd.context() as context_id:
        call_others(x(), 2)
        assert autograd._retrieve_context(context_id)._known_worker_ids() == {1, 2, 3}
        before = len(simulation.trace)
    simulation.sleep(1)
    assert contexts(simulation) == dict.fromkeys(NAMES, 0)
    assert frames_sent(simulation, before) == len(NAMES) - 1


@pytest.mark.parametrize("occurrence", [1, 2, 3, 4])
def test_a_home_that_dies_while_it_notifies_leaves_no_context_behind(simulation, occurrence):
    def program():
        autograd._new_context()
        call_others(x(), 2)

    simulation.run("main", lambda: contextvars.copy_context().run(program))
    assert contexts(simulation) == dict.fromkeys(NAMES, 1)
    simulation.crash_at("main", "before send", occurrence)
    with contextlib.suppress(WorkerLost):
        simulation.run("main", release_the_one)
    simulation.settle(60)
    assert set(contexts(simulation).values()) == {0}


@on_workers("main", "b")
def test_an_exception_in_the_block_releases_the_context_too():
    with pytest.raises(ZeroDivisionError), autograd.context() as context_id:
        rpc.rpc_sync("b", handlers.scale, (x(),))
        raise ZeroDivisionError
    assert not handlers.has_context(context_id)


def test_the_death_of_the_home_releases_its_contexts_along_the_way_they_went(simulation):
    open_and_stay(simulation, ["b", "c", "d"])
    open_and_stay(simulation, ["c"], home="b")
    simulation.crash("main")
    simulation.settle(60)
    assert contexts(simulation) == {"b": 1, "c": 1, "d": 0}


def test_when_the_introducer_dies_the_home_still_releases_those_it_introduced(simulation):
    open_and_stay(simulation, ["b", "c", "d"])
    simulation.crash("b")
    simulation.settle(60)
    assert contexts(simulation) == {"main": 1, "c": 1, "d": 1}
    simulation.run("main", release_the_one)
    simulation.settle(60)
    assert contexts(simulation) == {"main": 0, "c": 0, "d": 0}


def test_when_the_introducer_dies_after_the_home_left_nothing_is_kept(simulation):
    open_and_stay(simulation, ["b", "c"])
    simulation.cut("main", "b")
    simulation.run("main", release_the_one)
    simulation.crash("b")
    simulation.settle(60)
    assert contexts(simulation) == {"main": 0, "c": 0, "d": 0}


def test_when_home_and_introducer_die_together_nothing_is_kept(simulation):
    open_and_stay(simulation, ["b", "c", "d"])
    simulation.crash("main")
    simulation.crash("b")
    simulation.settle(60)
    assert contexts(simulation) == {"c": 0, "d": 0}


def test_a_home_that_comes_back_finds_its_old_contexts_gone(simulation):
    open_and_stay(simulation, ["b", "c"])
    simulation.crash("main")
    simulation.settle(60)
    simulation.restart("main")
    open_and_stay(simulation, ["b"])
    simulation.settle(1)
    assert contexts(simulation) == {"main": 1, "b": 1, "c": 0, "d": 0}


@on_workers(*NAMES)
def test_a_handler_that_outlives_its_context_does_not_bring_it_back(simulation):
    with autograd.context():
        late = rpc.rpc_async("b", sleep_and_go_on, (5.0, "c", x()))
        simulation.sleep(1)
    answer = late.wait()
    assert answer.detach().tolist() == [20.0, 63.0]
    with pytest.raises(ContextError, match="which is released"):
        answer.sum().backward()
    simulation.sleep(1)
    assert contexts(simulation) == dict.fromkeys(NAMES, 0)


def sleep_and_go_on(seconds, other, value):
    rpc.current_worker().host.simulation.sleep(seconds)
    return handlers.through([other], value)


OUTLIVED = []


def sleep_and_scale(seconds, value):
    OUTLIVED.append(CURRENT.get().context)
    rpc.current_worker().host.simulation.sleep(seconds)
    return handlers.scale(value)


@on_workers("main", "b")
def test_the_result_of_a_handler_that_outlives_its_context_leaves_nothing_in_it(simulation):
    OUTLIVED.clear()
    with autograd.context():
        late = rpc.rpc_async("b", sleep_and_scale, (5.0, x()))
        simulation.sleep(1)
    late.wait()
    (context,) = OUTLIVED
    assert context.released
    assert not context.sends


@pytest.mark.parametrize("seconds", [0.0, 5.0], ids=["before", "after"])
@on_workers("main", "b")
def test_a_result_says_that_its_context_was_released_before_or_after_it_came(simulation, seconds):
    w = tg.tensor([1.0, 1.0], requires_grad=True)
    with autograd.context():
        late = rpc.rpc_async("b", sleep_and_scale, (seconds, x()))
        simulation.sleep(1)
    y = late.wait()
    assert y.detach().tolist() == [10.0, 21.0]
    # Without what goes through `y` the gradient of `w` would look whole, and x would have none.
    with pytest.raises(ContextError, match="which is released"):
        (y * w).sum().backward()
    assert w.grad is None
    reference = weakref.ref(y.node)
    del y, late
    gc.collect()
    assert reference() is None


@on_workers("main", "b")
def test_the_loss_of_another_worker_leaves_a_context_alone(simulation):
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (x(),))
        simulation.crash("b")
        simulation.sleep(30)
        assert handlers.has_context(context_id)
        with pytest.raises(WorkerLost, match=r"\bb\b"):
            autograd.backward(context_id, [y.sum()])
        assert autograd.get_gradients(context_id) == {}


@on_workers("main", "b")
def test_gradients_that_are_waited_for_when_the_context_is_released_are_an_error(simulation):
    with autograd.context() as context_id:
        rpc.rpc_sync("b", handlers.scale, (x(),))
        asked = rpc.rpc_async("b", sleep_and_ask, (2.0, context_id))
        simulation.sleep(1)
    with pytest.raises(ContextError, match=str(context_id)):
        asked.wait()


def sleep_and_ask(seconds, context_id):
    rpc.current_worker().host.simulation.sleep(seconds)
    return handlers.gradient(context_id)


@on_workers("main", "b", "c")
def test_a_pass_and_those_who_wait_for_it_hear_that_the_context_was_released(simulation):
    with autograd.context() as context_id:
        ran = rpc.rpc_async("b", run_a_slow_pass, ("c", context_id))
        simulation.sleep(1)
        asked = rpc.rpc_async("c", handlers.gradient, (context_id,))
        simulation.sleep(1)
    with pytest.raises(PassAborted, match="under way when the context was released"):
        ran.wait()
    with pytest.raises(ContextError, match=f"got {context_id}; .* is released"):
        asked.wait()


@pytest.mark.parametrize("step", [(PassCoordinator, "_new_local_pass"), (GradientCodec, "unpack")])
def test_a_pass_that_begins_as_its_context_is_released_says_so_and_is_not_kept(step, monkeypatch):
    found, before = [], getattr(*step)

    def release_first(self, what, *args):
        if rpc.current_worker().name == "b":
            context = getattr(what, "context", what)
            found.append(context)
            autograd_of(rpc.current_worker()).leases.release(context.id)
        return before(self, what, *args)

    @on_workers("main", "b")
    def test():
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", handlers.scale, (x(),))
            with pytest.raises(PassAborted, match="under way when the context was released"):
                autograd.backward(context_id, [y.sum()])

    monkeypatch.setattr(*step, release_first)
    test()
    (context,) = found
    assert context.released
    assert all(each.ended.done() for each in context.passes.values())


def run_a_slow_pass(other, context_id):
    autograd.backward(context_id, [rpc.rpc_sync(other, slow_in_backward, (5.0, x())).sum()])


def slow_in_backward(seconds, value):
    y = value * handlers.parameter()
    simulation = rpc.current_worker().host.simulation
    y.register_hook(lambda g: simulation.sleep(seconds))
    return y


def test_a_call_does_not_bring_a_context_back_to_a_home_that_started_anew(simulation):
    def call_back():
        (context,) = autograd_of(rpc.current_worker()).contexts.all()
        place = CURRENT.set(ProgramPoint(context, (1,)))
        try:
            with pytest.raises(ContextError, match="never used here or is released"):
                rpc.rpc_sync("main", handlers.scale, (x(),))
        finally:
            CURRENT.reset(place)

    open_and_stay(simulation, ["b", "c"])
    # Nobody notifies c, which still has the context when it calls the new main.
    simulation.cut("b", "c")
    simulation.crash("main")
    simulation.restart("main")
    simulation.run("c", call_back)
    simulation.settle(60)
    assert contexts(simulation) == {"main": 0, "b": 0, "c": 0, "d": 0}


# A call that came before its caller was lost, and runs afterwards.


def start_and_lose(simulation, program, victim, late):
    """Runs a program on main; `late` serves what came for it only after `victim` has died."""
    joined = simulation.worker(late).joined = Future()
    simulation.start(simulation.hosts["main"], lambda: contextvars.copy_context().run(program))
    simulation.settle(1)
    simulation.crash(victim)
    simulation.settle(30)
    joined.set_result(None)
    simulation.settle(30)


def open_through(*names):
    def program():
        autograd._new_context()
        with contextlib.suppress(WorkerLost):
            handlers.through(names, x())

    return program


def test_a_call_that_runs_after_its_home_was_lost_leaves_no_context(simulation):
    start_and_lose(simulation, open_through("b"), "main", "b")
    assert contexts(simulation) == {"b": 0, "c": 0, "d": 0}


def test_the_home_hears_of_who_served_a_call_after_its_introducer_was_lost(simulation):
    start_and_lose(simulation, open_through("b", "c"), "b", "c")
    assert contexts(simulation) == {"main": 1, "c": 1, "d": 0}
    simulation.run("main", release_the_one)
    simulation.settle(30)
    assert contexts(simulation) == {"main": 0, "c": 0, "d": 0}


def test_a_call_that_runs_after_its_caller_was_lost_leaves_no_level(simulation):
    def program():
        with forward_ad.dual_level():
            rpc.rpc_sync("b", handlers.scale, (forward_ad.make_dual(x(), x()),))

    start_and_lose(simulation, program, "main", "b")
    assert handlers.leftovers(simulation.worker("b"))["levels"] == 0


# A loss is that of a connection, not of a worker's id.


def lose(worker, name):
    """Let a worker lose another by the end of a connection, though both live."""
    peer = worker.peers.get(name)
    path = peer.outgoing or peer.incoming
    worker.endpoint_lost(path, ConnectionError("it was silent"))


@contextlib.contextmanager
def three():
    """Three workers over sockets, each of which has called the others."""
    with neighbours("a", "b", "c") as workers:
        for worker in workers:
            attach_autograd(worker)
        for worker in workers:
            for other in workers:
                if other is not worker:
                    assert worker.rpc_sync(other.name, min, ((1, 2),)) == 1
        yield workers


def test_a_context_that_comes_over_a_new_connection_outlives_the_loss_of_the_old_one(monkeypatch):
    with three() as (a, b, _):
        contexts = autograd_of(b).contexts
        old, fresh = a.next_id(), a.next_id()
        contexts.open(old, a.info)
        ended = b.host.ended

        def meet_anew(endpoint):
            # The peer has been dialled again, and a call with a new context is quicker than those
            # who are told of the loss.
            contexts.open(fresh, a.info)
            ended(endpoint)

        monkeypatch.setattr(b.host, "ended", meet_anew)
        lose(b, "a")
        assert contexts.find(fresh) is not None
        assert contexts.find(old) is None


def test_one_that_lost_the_home_asks_it_for_contexts_that_others_brought():
    with three() as (a, b, c):
        context = autograd_of(a).contexts.new(a.next_id())
        context.meet(c.info)
        autograd_of(c).contexts.open(context.id, a.info).meet(b.info)
        autograd_of(b).contexts.open(context.id, c.info)
        lose(b, "a")
        # b has made itself known to the home, so the context lives there and on c.
        assert eventually(lambda: "b" in context.known)
        assert all(autograd_of(each).contexts.find(context.id) for each in (a, b, c))
        autograd_of(a).leases.release(context.id)
        assert eventually(lambda: not any(len(autograd_of(x).contexts) for x in (a, b, c)))


def test_a_worker_that_lost_the_home_takes_a_context_from_nobody_else():
    with three() as (a, b, c):
        context = autograd_of(a).contexts.new(a.next_id())
        context.meet(b.info)
        autograd_of(b).contexts.open(context.id, a.info).meet(c.info)
        autograd_of(c).contexts.open(context.id, b.info)
        lose(b, "a")
        assert eventually(lambda: "c" in context.known)
        assert autograd_of(b).contexts.find(context.id) is None
        assert autograd_of(c).contexts.find(context.id) is not None


def test_what_a_loss_took_is_said_with_its_cause_and_not_as_a_mistake_of_the_user():
    with three() as (a, b, _):
        contexts = autograd_of(b).contexts
        context = contexts.open(a.next_id(), a.info)
        lose(b, "a")
        expected = (
            rf"context {context.id} is gone on worker 'b' since worker 'b' lost its home \(worker "
            r"'a' was lost: it was silent\); run the step again, in a new context"
        )
        for ask in (contexts.get, contexts.met, lambda number: contexts.open(number, a.info)):
            with pytest.raises(WorkerLost, match=expected):
                ask(context.id)
