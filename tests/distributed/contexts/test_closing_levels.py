"""A dual level that closes while a pass runs, on each worker at another moment."""

import random

import numpy as np
import pytest
from tests.distributed import handlers
from tests.distributed.simulated import IN_ORDER, SLOW, on_workers
from tests.distributed.soak import amount

import telegrad as tg
from telegrad.autograd import forward_ad
from telegrad.distributed import autograd, rpc
from telegrad.distributed.contexts import dual_levels
from telegrad.distributed.current import autograd_of
from telegrad.errors import LevelError
from telegrad.rpc.calls.future import Future
from telegrad.tensors.forward.levels import Level

X = np.array([0.5, 0.25])


def both(value):
    y = value * handlers.parameter()
    return y, tg.sin(y)


def both_there(value):
    return rpc.rpc_sync("c", both, (value,))


def loss_of(value):
    """Messages of two tensors: what one of them loses must not shift the other."""
    y, z = rpc.rpc_sync("b", both_there, (value,))
    p, q = rpc.rpc_sync("c", both, (y * z,))
    return (p * q).sum()


def gradients(context_id, x, loss):
    """The gradient by a recorded pass, and the gradient of its sum by a second one."""
    (first,) = autograd.grad(context_id, loss, x, create_graph=True)
    # On a level that is still open its tangent has a history of its own.
    primal = forward_ad.unpack_dual(first).primal if first.is_dual else first
    (second,) = autograd.grad(context_id, primal.sum(), x)
    return [each.detach().numpy().tolist() for each in (first, second)]


def expected():
    x = tg.tensor(X, requires_grad=True)
    with autograd.context() as context_id:
        return gradients(context_id, x, loss_of(x))


@pytest.mark.parametrize("seed", range(amount(30, 1000)))
def test_a_level_that_closes_during_a_recorded_pass_leaves_both_orders_exact(seed):
    @on_workers("main", "b", "c", seed=seed, faults=SLOW)
    def test(simulation):
        x = tg.tensor(X, requires_grad=True)
        found = Future()
        plain = expected()

        def run():
            try:
                found.set_result(gradients(context_id, x, loss))
            except BaseException as error:
                found.set_exception(error)

        with autograd.context() as context_id:
            with forward_ad.dual_level():
                tangent = tg.tensor(np.ones(2), requires_grad=True)
                loss = loss_of(forward_ad.make_dual(x, tangent))
                # On a strand of its own, as another thread would.
                rpc.current_worker().host.start(run)
                simulation.sleep(random.Random(seed).uniform(0.0, 0.2))
            assert found.wait() == plain

    test()


@on_workers("main", "b")
def test_a_level_that_closed_before_it_was_shared_is_not_kept():
    levels = autograd_of(rpc.current_worker()).levels
    level = Level()
    level.close()
    mention = levels.share(level, "b")
    assert len(levels) == 0
    # Nor by a worker that hears of it.
    assert rpc.rpc_sync("b", knows_level, (mention,)) is False


def knows_level(mention):
    """Asked again until the notice came."""
    worker = rpc.current_worker()
    levels = autograd_of(worker).levels
    for _ in range(100):
        if mention[0] in levels._closed:
            break
        worker.host.simulation.sleep(0.01)
    return levels.meet([mention]) != [None]


def second_of(first, second, third):
    """Of a dual tensor, one that requires grad and a constant: the second counts."""
    return (second * second).sum() + 0.0 * (first.sum() + third.sum())


@pytest.fixture
def closing(monkeypatch):
    """Has a level close between the counting of a message's tensors and their leaving."""

    def arrange(close):
        recorder = autograd_of(rpc.current_worker()).recorder
        send_node = recorder._send_node

        def close_first(*args):
            close()
            return send_node(*args)

        monkeypatch.setattr(recorder, "_send_node", close_first)

    return arrange


@pytest.mark.parametrize("is_leaf", [False, True])
def test_a_level_that_closes_while_a_message_is_recorded_leaves_gradients_exact(closing, is_leaf):
    @on_workers("main", "b")
    def test():
        x, constant = tg.tensor(X, requires_grad=True), tg.tensor(X)
        with autograd.context() as context_id:
            level = forward_ad.enter_dual_level()
            dual = forward_ad.make_dual(tg.tensor(X), tg.tensor(np.ones(2)))
            dual.requires_grad_(is_leaf)
            closing(lambda: forward_ad.exit_dual_level(level))
            loss = rpc.rpc_sync("b", second_of, (dual, x, constant))
            autograd.backward(context_id, [loss])
            found = autograd.get_gradients(context_id)
            expected = {x: (2.0 * X).tolist()}
            if is_leaf:
                expected[dual] = [0.0, 0.0]
            assert {leaf: g.numpy().tolist() for leaf, g in found.items()} == expected

    test()


@on_workers("main", "b")
def test_a_dual_leaf_that_leaves_as_a_gradient_is_differentiated():
    x = tg.tensor(X, requires_grad=True)
    with autograd.context() as context_id, forward_ad.dual_level():
        y = rpc.rpc_sync("b", handlers.square, (x,))
        weights = forward_ad.make_dual(tg.tensor(X), tg.tensor(np.ones(2))).requires_grad_()
        (first,) = autograd.grad(context_id, y, x, grad_outputs=weights, create_graph=True)
        primal = forward_ad.unpack_dual(first).primal
        (found,) = autograd.grad(context_id, primal.sum(), weights)
        assert forward_ad.unpack_dual(found).primal.numpy().tolist() == (2.0 * X).tolist()


@on_workers("main", "b")
def test_notices_of_levels_that_were_never_met_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(dual_levels, "_REMEMBERED", 2)
    worker = rpc.current_worker()
    levels = autograd_of(worker).levels
    for number in range(5):
        levels._close(number)
    assert list(levels._closed) == [3, 4]


@on_workers("main")
def test_a_level_that_closes_while_it_is_compared_with_another_is_not_that_one():
    class Ids(dict):
        """Another thread closes the level just before it is looked up."""

        def get(self, level):
            self.pop(level, None)
            return super().get(level)

    level, other = Level(), Level()
    levels = autograd_of(rpc.current_worker()).levels
    levels._ids, before = Ids({level: 1}), levels._ids
    assert not dual_levels.are_one(level, other)
    assert not levels._ids
    assert dual_levels.are_one(level, level)
    levels._ids = before


# A level whose worker was lost elsewhere, and lives.


def doubled(x, seconds=0.0):
    if seconds:
        rpc.current_worker().host.simulation.sleep(seconds)
    return x * 2.0


def through_b(x, seconds):
    return rpc.rpc_sync("b", doubled, (x, seconds), timeout=300)


def lose(simulation, one, other):
    """Both lose each other, and can reach each other again."""
    simulation.cut(one, other)
    simulation.sleep(60)
    simulation.heal(one, other)


def dual():
    ones = tg.tensor(np.ones(2))
    return forward_ad.make_dual(ones, ones)


@on_workers("main", "b", faults=IN_ORDER)
def test_a_level_that_a_worker_gave_up_is_not_taken_for_one_that_closed(simulation):
    with forward_ad.dual_level():
        x = dual()
        assert tangent_of(rpc.rpc_sync("b", doubled, (x,))) == [2.0, 2.0]
        lose(simulation, "main", "b")
        with pytest.raises(LevelError, match="'b' lost 'main', which entered it"):
            rpc.rpc_sync("b", doubled, (x,))
    with forward_ad.dual_level():
        assert tangent_of(rpc.rpc_sync("b", doubled, (dual(),))) == [2.0, 2.0]


@on_workers("main", "b", "c", faults=IN_ORDER)
def test_a_level_that_is_orphaned_while_a_handler_runs_fails_its_call(simulation):
    with forward_ad.dual_level():
        x = dual()
        assert tangent_of(rpc.rpc_sync("b", doubled, (x,))) == [2.0, 2.0]
        call = rpc.rpc_async("c", through_b, (x, 100.0), timeout=300)
        simulation.sleep(1)
        lose(simulation, "main", "b")
        with pytest.raises(LevelError, match="'b' lost 'main', which entered it"):
            call.wait()


def tangent_of(value):
    return forward_ad.unpack_dual(value).tangent.numpy().tolist()
