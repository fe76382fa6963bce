"""What the collector frees may use contexts and levels itself, whichever lock is held then."""

import gc

import pytest
from tests.distributed import handlers
from tests.distributed.simulated import on_workers
from tests.interpreter import needs_eager_collector
from tests.rpc.inside import replace_lock
from tests.rpc.neighbours import neighbours
from tests.rpc.test_finalizers import Cycle, Watched, in_time

import telegrad as tg
from telegrad.distributed import autograd, parameter_lock, rpc
from telegrad.distributed.contexts import context as context_module
from telegrad.distributed.current import autograd_of
from telegrad.distributed.passes import local_pass
from telegrad.distributed.passes.coordinator import PassCoordinator
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.errors import ContextError
from telegrad.rpc.names import WorkerInfo
from telegrad.tensors.forward.levels import Level


@pytest.mark.usefixtures("_collector")
def test_the_collector_may_run_what_opens_the_same_context_while_it_is_being_opened():
    with neighbours("a") as (a,):
        attach_autograd(a)
        contexts = autograd_of(a).contexts
        found = []

        def open_context():
            found.append(contexts.open(5, WorkerInfo("b", 1)))

        replace_lock(contexts, lambda lock: Watched(lock, open_context))
        assert in_time(open_context)
        assert len(found) == 2
        assert found[0] is found[1] is contexts.get(5)


@pytest.mark.usefixtures("_collector")
def test_the_collector_may_run_what_looks_at_the_gradients_while_another_does():
    with neighbours("a") as (a,):
        attach_autograd(a)
        context = autograd_of(a).contexts.new(5)
        found = []

        def look():
            found.append(context.committed_gradients())

        context.lock = Watched(context.lock, look)
        assert in_time(look)
        assert found == [{}, {}]


@pytest.mark.usefixtures("_collector")
@pytest.mark.parametrize("shares", [True, False])
def test_the_collector_may_run_what_mentions_the_same_level_while_it_is_being_entered(shares):
    with neighbours("a") as (a,):
        attach_autograd(a)
        levels = autograd_of(a).levels
        level = Level()
        found = []

        def mention():
            given = (7, *level.depth)
            found.append(levels.share(level, "b") if shares else levels.meet([given])[0])

        replace_lock(levels, lambda lock: Watched(lock, mention))
        assert in_time(mention)
        assert len(found) == 2
        assert found[0] == found[1]
        assert len(levels) == 1
        (level if shares else found[0]).close()
        assert len(levels) == 0


def read_gradients_in(monkeypatch, owner, method, here, context_id, said):
    """Read those of a worker once, as a finalizer would, when it is about to run the method."""
    run = getattr(owner, method)
    context = autograd_of(here).contexts.get(context_id)

    def interrupted(self, *args):
        is_here = self is context or getattr(self, "_worker", None) in (here, here.info)
        if is_here and not said:
            with pytest.raises(ContextError, match="would wait for itself") as error:
                context.committed_gradients()
            said.append(error)
        return run(self, *args)

    monkeypatch.setattr(owner, method, interrupted)


@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (local_pass.LocalPass, "_count"),
        (local_pass.LocalPass, "receive"),
        (PassCoordinator, "_run_to_rest"),
        (context_module.Context, "add_gradients"),
    ],
)
@pytest.mark.parametrize("worker", ["main", "b"])
def test_a_finalizer_that_reads_gradients_of_the_pass_it_interrupts_is_refused(
    owner, method, worker, monkeypatch
):
    @on_workers("main", "b")
    def test(simulation):
        said = []
        x = tg.tensor([1.0, 2.0], requires_grad=True)
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", handlers.scale, (x,))
            here = simulation.worker(worker)
            read_gradients_in(monkeypatch, owner, method, here, context_id, said)
            autograd.backward(context_id, [y.sum()])
            assert x in autograd.get_gradients(context_id)
            assert rpc.rpc_sync("b", handlers.gradient, (context_id,)) is not None
        assert len(said) == 1

    test()


def test_a_pass_that_a_finalizer_runs_while_another_is_added_up_is_not_lost(monkeypatch):
    with neighbours("a") as (a,):
        attach_autograd(a)
        context = autograd_of(a).contexts.new(5)
        x, y = tg.tensor([1.0]), tg.tensor([2.0])
        context.add_gradients({x: tg.tensor([1.0])})
        add = context_module.added

        def interrupted(*values):
            monkeypatch.undo()
            context.add_gradients({x: tg.tensor([10.0]), y: tg.tensor([20.0])})
            return add(*values)

        monkeypatch.setattr(context_module, "added", interrupted)
        context.add_gradients({x: tg.tensor([100.0]), y: tg.tensor([200.0])})
        found = context.committed_gradients()
        assert found[x].tolist() == [111.0]
        assert found[y].tolist() == [220.0]


class Parameter:
    """What can be referred to weakly."""


@needs_eager_collector
@pytest.mark.usefixtures("_collector")
def test_the_collector_may_run_what_steps_while_the_lock_of_another_parameter_is_made(monkeypatch):
    stepped = []

    def step(parameter):
        with parameter_lock.alone_with([parameter]):
            stepped.append(parameter)

    class Watching(dict):
        def get(self, key):
            if not gc.isenabled():
                Cycle(lambda: step(other))
                self[0] = [[] for _ in range(100)]
                gc.set_threshold(1)
                gc.enable()
            return super().get(key)

    one, other = Parameter(), Parameter()
    monkeypatch.setattr(parameter_lock, "_locks", Watching())
    assert in_time(lambda: step(one))
    assert stepped == [other, one]
