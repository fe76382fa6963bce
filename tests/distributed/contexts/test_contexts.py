"""Contexts: which one is current where, and what is kept in it."""

import asyncio
import contextvars
import threading

import numpy as np
import pytest
from tests.distributed import handlers
from tests.distributed.simulated import IN_ORDER, on_workers

import telegrad as tg
from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.distributed.current import autograd_of
from telegrad.distributed.passes.local_pass import LocalPass
from telegrad.errors import ContextError


def x():
    return tg.tensor(np.array([5.0, 7.0]), requires_grad=True)


@on_workers("main", "b")
def test_a_nested_context_is_refused_and_the_outer_one_goes_on():
    with autograd.context() as context_id:
        with (
            pytest.raises(ContextError, match=f"but {context_id} is, .* leave it before"),
            autograd.context(),
        ):
            pass
        y = rpc.rpc_sync("b", handlers.scale, (x(),))
        autograd.backward(context_id, [y.sum()])
        assert rpc.rpc_sync("b", handlers.gradient, (context_id,)) == [5.0, 7.0]


@on_workers("main", "b")
def test_a_handler_runs_in_the_context_of_its_caller_and_may_not_open_another():
    with autograd.context() as context_id:
        assert rpc.rpc_sync("b", handlers.current_context_id) == context_id
        with pytest.raises(ContextError, match="contexts don't nest"):
            rpc.rpc_sync("b", autograd._new_context)
    with pytest.raises(ContextError, match="expected a context to be open here"):
        rpc.rpc_sync("b", handlers.current_context_id)


@on_workers("main", "b", "c")
def test_a_context_follows_calls_to_any_depth():
    def ask(names):
        if not names:
            return handlers.current_context_id()
        return rpc.rpc_sync(names[0], ask, (names[1:],))

    with autograd.context() as context_id:
        assert ask(["b", "c", "b", "main", "c"]) == context_id


@on_workers("main", "b")
def test_the_ids_of_contexts_are_never_given_twice_and_have_their_home():
    seen = []
    for _ in range(20):
        with autograd.context() as context_id:
            seen.append(context_id)
        seen.append(rpc.rpc_sync("b", handlers.open_and_leave))
    assert len(set(seen)) == 40
    assert {context_id >> 48 for context_id in seen[::2]} == {0}
    assert {context_id >> 48 for context_id in seen[1::2]} == {1}


@on_workers("main", "b")
def test_contexts_that_follow_each_other_keep_their_gradients_apart():
    one = x()
    for factor in (1.0, 2.0):
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", handlers.scale, (one,))
            autograd.backward(context_id, [(factor * y).sum()])
            assert autograd.get_gradients(context_id)[one].numpy().tolist() == [
                2.0 * factor,
                3.0 * factor,
            ]
            assert rpc.rpc_sync("b", handlers.gradient, (context_id,)) == [
                5.0 * factor,
                7.0 * factor,
            ]
    assert one.grad is None


@on_workers("main", "b")
def test_gradients_of_leaves_go_to_the_context_and_never_to_grad():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,))
        autograd.backward(context_id, [y.sum()])
        assert rpc.rpc_sync("b", lambda: handlers.parameter().grad) is None
    assert one.grad is None


@pytest.mark.processes
def test_threads_and_async_tasks_have_contexts_of_their_own():
    with LocalCluster(["b"]):
        together = threading.Barrier(4)
        wrong = []

        def train(factor):
            one = x()
            with autograd.context() as context_id:
                together.wait(10)
                y = rpc.rpc_sync("b", handlers.scale, (one,))
                together.wait(10)
                autograd.backward(context_id, [(factor * y).sum()])
                together.wait(10)
                mine = autograd.get_gradients(context_id)[one].numpy().tolist()
                theirs = rpc.rpc_sync("b", handlers.gradient, (context_id,))
                expected = [2.0 * factor, 3.0 * factor], [5.0 * factor, 7.0 * factor]
                if (mine, theirs) != expected:
                    wrong.append((factor, mine, theirs))

        threads = [threading.Thread(target=train, args=(float(i + 1),)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert wrong == []

        async def step(factor):
            one = x()
            with autograd.context() as context_id:
                await asyncio.sleep(0)
                y = await rpc.rpc_async("b", handlers.scale, (one,))
                await asyncio.sleep(0)
                autograd.backward(context_id, [(factor * y).sum()])
                return autograd.get_gradients(context_id)[one].numpy().tolist()

        async def steps():
            return await asyncio.gather(*(step(float(i + 1)) for i in range(4)))

        assert asyncio.run(steps()) == [[2.0 * (i + 1), 3.0 * (i + 1)] for i in range(4)]


@pytest.mark.processes
def test_a_thread_that_gets_the_context_of_another_records_in_it():
    with LocalCluster(["b"]):
        answers = []
        with autograd.context() as context_id:
            one = x()
            here = contextvars.copy_context()

            def call():
                answers.append(here.run(rpc.rpc_sync, "b", handlers.scale, (one,)))

            thread = threading.Thread(target=call)
            thread.start()
            thread.join(30)
            autograd.backward(context_id, [answers[0].sum()])
            assert autograd.get_gradients(context_id)[one].numpy().tolist() == [2.0, 3.0]


@pytest.mark.processes
def test_threads_that_share_a_context_may_each_run_a_pass_in_it():
    with LocalCluster(["b", "c"]):
        leaves = [x() for _ in range(6)]
        with autograd.context() as context_id:

            def train(one):
                y = rpc.rpc_sync("b", handlers.through, (["c"], one))
                rpc.rpc_sync("c", handlers.scale, (one,))  # not used
                autograd.backward(context_id, [y.sum()])

            threads = [
                threading.Thread(target=contextvars.copy_context().run, args=(train, one))
                for one in leaves
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            found = autograd.get_gradients(context_id)
            assert [found[one].numpy().tolist() for one in leaves] == [[4.0, 9.0]] * 6
            for name in "bc":
                theirs = rpc.rpc_sync(name, handlers.gradient, (context_id,))
                assert theirs == [60.0, 126.0]


# What users of PyTorch know.


@on_workers("main", "b")
def test_the_names_that_users_of_pytorch_know_say_what_they_say_there():
    context = autograd._new_context()
    context_id = context._context_id()
    assert autograd._is_valid_context(context_id)
    assert autograd._current_context()._context_id() == context_id
    assert autograd._get_debug_info() == {
        "num_current_backward_passes": 0,
        "num_autograd_contexts": 1,
    }
    y = rpc.rpc_sync("b", handlers.scale, (x(),))
    found = autograd._retrieve_context(context_id)
    assert isinstance(found, autograd.DistAutogradContext)
    (sent,), (received,) = found._send_functions().values(), found._recv_functions().values()
    assert sent.name() == "SendRpcBackward"
    assert received.name() == "RecvRpcBackward"
    assert found._known_worker_ids() == {1}
    assert y.grad_fn is received
    theirs = rpc.rpc_sync("b", shape_of_context, (context_id,))
    assert theirs == (list(found._recv_functions()), list(found._send_functions()), [0])
    autograd._release_context(context_id)
    with pytest.raises(ContextError, match=str(context_id)):
        autograd._is_valid_context(context_id)
    with pytest.raises(ContextError, match="expected a context to be open here"):
        autograd._current_context()
    with pytest.raises(ContextError, match=str(context_id)):
        autograd._release_context(context_id)


@on_workers("main", "b", faults=IN_ORDER)
def test_the_local_passes_of_a_worker_are_counted_while_they_run():
    counts = {}

    def note(when):
        for name in ("main", "b"):
            found = rpc.rpc_sync(name, autograd._get_debug_info)
            counts[when, name] = found["num_current_backward_passes"]

    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,))
        y.register_hook(lambda g: note("before b"))
        one.register_hook(lambda g: note("behind b"))
        autograd.backward(context_id, [y.sum()])
        note("afterwards")
    assert counts == {
        ("before b", "main"): 1,
        ("before b", "b"): 0,
        ("behind b", "main"): 1,
        ("behind b", "b"): 1,
        ("afterwards", "main"): 0,
        ("afterwards", "b"): 0,
    }


@on_workers("main", "b", faults=IN_ORDER)
def test_a_handler_whose_context_was_released_has_none():
    def wait_and_look(context_id):
        simulation = rpc.current_worker().host.simulation
        while handlers.has_context(context_id):
            simulation.sleep(0.1)
        with pytest.raises(ContextError, match="expected a context to be open here"):
            autograd._current_context()

    with autograd.context() as context_id:
        looking = rpc.rpc_async("b", wait_and_look, (context_id,))
        # Answered after the other has begun: they arrive in order.
        rpc.rpc_sync("b", handlers.scale, (x(),))
    looking.wait()


@on_workers("main", "b", "c", faults=IN_ORDER)
def test_what_such_a_handler_is_given_by_others_can_not_be_differentiated():
    def wait_and_call(context_id, value):
        simulation = rpc.current_worker().host.simulation
        while handlers.has_context(context_id):
            simulation.sleep(0.1)
        w = handlers.parameter()
        late = rpc.rpc_sync("c", tg.multiply, (w, w))
        with pytest.raises(ContextError, match="outside of any context"):
            late.sum().backward()

    with autograd.context() as context_id:
        calling = rpc.rpc_async("b", wait_and_call, (context_id, x()))
        # Answered after the other has begun: they arrive in order.
        rpc.rpc_sync("b", handlers.scale, (x(),))
    calling.wait()


def shape_of_context(context_id):
    """The messages given away and received on this worker, and who is known."""
    found = autograd._retrieve_context(context_id)
    sends, recvs = found._send_functions(), found._recv_functions()
    return list(sends), list(recvs), sorted(found._known_worker_ids())


@on_workers("main", "b")
def test_the_largest_id_of_a_context_carries_the_worker():
    with autograd.context() as context_id:
        assert 0 < context_id <= autograd._get_max_id() == (1 << 48) - 1
    assert rpc.rpc_sync("b", autograd._get_max_id) == (2 << 48) - 1
    autograd._init(0)


# Handlers of a context may record while a pass is committed or the context released.


@on_workers("main", "b", "c")
def test_a_worker_that_is_met_while_a_context_is_released_does_no_harm():
    class Name(str):
        """A comparison gives another thread the time to meet a worker."""

        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other):
            context.known.setdefault("c", rpc.get_worker_info("c"))
            return str.__eq__(self, other)

        def __ne__(self, other):
            return not self == other

    with autograd.context() as context_id:
        rpc.rpc_sync("b", handlers.scale, (x(),))
        context = autograd_of(rpc.current_worker()).contexts.get(context_id)
        context.known = {Name("main"): rpc.get_worker_info(), **context.known}
    assert context.released
    assert "c" in context.known


def test_a_message_that_is_recorded_while_a_pass_is_committed_does_no_harm(monkeypatch):
    class Done(set):
        """A look into it gives another thread the time to record a message."""

        def __contains__(self, node):
            self.context.sends.setdefault(-1, node)
            return super().__contains__(node)

    def forget_spent(local_pass):
        local_pass._task.done = done = Done(local_pass._task.done)
        done.context = local_pass.context
        try:
            forget(local_pass)
        finally:
            local_pass.context.sends.pop(-1)

    forget = LocalPass._forget_spent
    monkeypatch.setattr(LocalPass, "_forget_spent", forget_spent)

    @on_workers("main", "b")
    def test():
        one = x()
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", handlers.scale, (one,))
            autograd.backward(context_id, [y.sum()])
            assert autograd.get_gradients(context_id)[one].numpy().tolist() == [2.0, 3.0]
            assert rpc.rpc_sync("b", handlers.gradient, (context_id,)) == [5.0, 7.0]

    test()
