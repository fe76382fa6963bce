"""Torch tensors with a tangent over calls: what comes back is what one process would have."""

import gc
import os

import pytest
import torch
from tests.distributed.simulated import IN_ORDER, on_workers
from tests.interop.torch import handlers as handlers
from torch.autograd import forward_ad

import telegrad as tg
from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.errors import LevelError
from telegrad.interop.torch.framework import Torch
from telegrad.interop.torch.values import duals, levels
from telegrad.tensors import wrap
from telegrad.tensors.forward.levels import Level


def dual(value=(5.0, 7.0), tangent=(1.0, 10.0), requires_grad=False):
    primal = torch.tensor(value, dtype=torch.float64, requires_grad=requires_grad)
    return forward_ad.make_dual(primal, torch.tensor(tangent, dtype=torch.float64))


def parts_of(value):
    primal, tangent = forward_ad.unpack_dual(value)
    return primal.tolist(), None if tangent is None else tangent.tolist()


@pytest.mark.parametrize("in_context", [False, True])
def test_tangents_travel_there_and_back(in_context):
    @on_workers("main", "b", "c")
    def program():
        with forward_ad.dual_level():
            one = dual()
            if in_context:
                with autograd.context():
                    found = rpc.rpc_sync("b", handlers.forward_to, (["c"], one))
            else:
                found = rpc.rpc_sync("b", handlers.forward_to, (["c"], one))
            assert parts_of(found) == ([20, 63], [4, 90])

    program()


@on_workers("main", "b")
def test_a_dual_inside_of_an_object_beside_ordinary_tensors_arrives_as_it_was():
    with forward_ad.dual_level():
        plain = torch.ones(2)
        found = rpc.rpc_sync("b", handlers.same, ({"x": [plain, dual(), plain]},))["x"]
        assert parts_of(found[1]) == ([5, 7], [1, 10])
        assert parts_of(found[0]) == ([1, 1], None)
        assert found[0] is found[2]


@on_workers("main", "b")
def test_a_tangent_that_pytorch_knows_to_be_zero_travels_as_zeros():
    with forward_ad.dual_level():
        one = dual(((2.0, 0.0), (0.0, 4.0)), ((1.0, 0.0), (0.0, 1.0)))
        sign, logarithm = rpc.rpc_sync("b", torch.linalg.slogdet, (one,))
        assert parts_of(sign) == (1, 0)
        assert parts_of(logarithm)[1] == 0.75


@on_workers("main", "b")
def test_primal_and_tangent_of_a_call_are_both_differentiated():
    w = handlers.parameter
    leaf = torch.tensor([5.0, 7.0], dtype=torch.float64, requires_grad=True)
    direction = torch.tensor([1.0, 10.0], dtype=torch.float64, requires_grad=True)
    with autograd.context() as context_id:
        with forward_ad.dual_level():
            one = forward_ad.make_dual(leaf * 1, direction * 1)
            y = rpc.rpc_sync("b", lambda v: (v * v * w(),), (one,))[0]
            primal, tangent = forward_ad.unpack_dual(y)
            assert tangent.tolist() == [2 * 5 * 2, 2 * 7 * 10 * 3]
            loss = primal.sum() + 100 * tangent.sum()
        autograd.backward(context_id, [loss])
        found = autograd.get_gradients(context_id)
        # d/dx (w x² + 200 w x t) and d/dt of the same.
        assert found[leaf].tolist() == [20 + 400, 42 + 6000]
        assert found[direction].tolist() == [200 * 2 * 5, 200 * 3 * 7]
        assert rpc.rpc_sync("b", handlers.gradients, (context_id,)) == {
            "w": [25 + 200 * 5, 49 + 200 * 70]
        }


@on_workers("main", "b")
def test_a_pass_inside_of_a_level_carries_the_tangents_of_gradients():
    one = torch.tensor([5.0, 7.0], dtype=torch.float64, requires_grad=True)
    direction = torch.tensor([1.0, 10.0], dtype=torch.float64)
    with autograd.context() as context_id, forward_ad.dual_level():
        x = forward_ad.make_dual(one, direction)
        y = rpc.rpc_sync("b", lambda v: v * v * v, (x,))
        (gradient,) = autograd.grad(context_id, [y.sum()], [one])
        # 3 x², and its derivative 6 x t.
        assert parts_of(gradient) == ([75, 147], [30, 420])


@on_workers("main", "b")
def test_a_recorded_pass_inside_of_a_level_carries_them_too():
    one = torch.tensor([5.0, 7.0], dtype=torch.float64, requires_grad=True)
    direction = torch.tensor([1.0, 10.0], dtype=torch.float64)
    with autograd.context() as context_id, forward_ad.dual_level():
        x = forward_ad.make_dual(one, direction)
        y = rpc.rpc_sync("b", lambda v: v * v * v, (x,))
        (gradient,) = autograd.grad(context_id, [y.sum()], [one], create_graph=True)
        primal, tangent = forward_ad.unpack_dual(gradient)
        assert tangent.tolist() == [30, 420]
        (second,) = autograd.grad(context_id, [primal.sum() + tangent.sum()], [one])
        # 6 x + 6 t.
        assert forward_ad.unpack_dual(second).primal.tolist() == [36, 102]


@on_workers("main", "b")
def test_a_level_opens_on_a_worker_that_only_gets_the_tangent_of_a_gradient():
    one = torch.tensor([5.0, 7.0], dtype=torch.float64, requires_grad=True)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", lambda v: v * v, (one,))
        with forward_ad.dual_level():
            (gradient,) = autograd.grad(context_id, [(y * dual()).sum()], [one])
            # 2 x u for the dual u.
            assert parts_of(gradient) == ([50, 98], [10, 140])


@on_workers("main", "b", faults=IN_ORDER)
def test_what_arrives_after_its_level_closed_is_ordinary():
    with forward_ad.dual_level():
        kept = rpc.remote("b", handlers.same, (dual(),))
        assert parts_of(kept.to_here()) == ([5, 7], [1, 10])
    found = kept.to_here()
    with forward_ad.dual_level():
        assert parts_of(found) == ([5, 7], None)
        assert parts_of(kept.to_here()) == ([5, 7], None)


def test_what_lost_its_tangent_since_it_came_is_recorded_without():
    leaf = tg.tensor([1.0, 2.0], requires_grad=True)
    # As when its level closes between the two.
    stand_in = wrap(None, (leaf * 3).node, duals.beside(wrap(None)))
    Torch().join(torch.ones(2), stand_in).sum().backward()
    assert leaf.grad.tolist() == [3, 3]


def scale_and_triple(value, w):
    return value * w, w * 3


@pytest.mark.parametrize("seed", range(8))
def test_a_level_that_closes_while_a_call_is_under_way_leaves_the_other_tensors_recorded(seed):
    @on_workers("main", "b", seed=seed)
    def program():
        leaf = torch.tensor([1.0, 2.0], requires_grad=True)
        w = torch.tensor([5.0, 7.0], requires_grad=True)
        with autograd.context() as context_id:
            with forward_ad.dual_level():
                one = forward_ad.make_dual(leaf, torch.ones(2))
                call = rpc.rpc_async("b", scale_and_triple, (one, w))
            scaled, tripled = call.wait()
            autograd.backward(context_id, [scaled.sum() + tripled.sum()])
            found = autograd.get_gradients(context_id)
            assert found[leaf].tolist() == [5, 7]
            assert found[w].tolist() == [4, 5]

    program()


def test_a_level_that_closes_while_a_message_is_recorded_leaves_gradients_exact(monkeypatch):
    @on_workers("main", "b")
    def program():
        leaf = torch.tensor([5.0, 7.0], dtype=torch.float64, requires_grad=True)
        with autograd.context() as context_id:
            level = forward_ad.enter_dual_level()
            values = (dual(requires_grad=True), leaf, torch.ones(2, dtype=torch.float64))
            carry = duals.carry

            def close_first(*args):
                # As another thread may, after the tangents were counted.
                monkeypatch.setattr(duals, "carry", carry)
                forward_ad.exit_dual_level(level=level)
                carry(*args)

            monkeypatch.setattr(duals, "carry", close_first)
            y = rpc.rpc_sync("b", lambda a, b, c: a * 0 + b * b + c * 0, values)
            autograd.backward(context_id, [y.sum()])
            assert autograd.get_gradients(context_id)[leaf].tolist() == [10, 14]

    program()


@on_workers("main", "b")
def test_tangents_of_two_levels_are_not_mixed():
    with forward_ad.dual_level():
        levels.current()
        with pytest.raises(LevelError, match="one forward-mode level of PyTorch at a time"):
            levels.bind(Level())


def test_nothing_is_looked_for_where_no_level_is_open(monkeypatch):
    def fail(*_):
        raise AssertionError("a tangent was looked for")

    monkeypatch.setattr(levels, "_unpack_dual", fail)

    @on_workers("main", "b")
    def program():
        one = torch.ones(2, requires_grad=True)
        with autograd.context() as context_id:
            autograd.backward(context_id, [rpc.rpc_sync("b", handlers.same, (one,)).sum()])

    program()
    assert not levels.is_open()


def test_a_level_that_was_shared_ends_with_pytorchs():
    with forward_ad.dual_level():
        first = levels.current()
        assert levels.current() is first
        assert first.is_open
    assert not first.is_open
    with forward_ad.dual_level():
        assert levels.current() is not first
    gc.collect()


def level_of_process():
    return os.getpid(), levels.is_open()


@pytest.mark.processes
def test_between_processes_the_level_of_the_other_one_opens_and_closes_with_this_one():
    with LocalCluster(["b"]):
        pid, is_there = rpc.rpc_sync("b", level_of_process)
        assert pid != os.getpid()
        assert not is_there
        for _ in range(2):
            with forward_ad.dual_level():
                found = rpc.rpc_sync("b", handlers.scale, (dual(),))
                assert parts_of(found) == ([10, 21], [2, 30])
                assert rpc.rpc_sync("b", level_of_process)[1]
            # The notice that closes it was sent before this call.
            assert not rpc.rpc_sync("b", level_of_process)[1]
        one = torch.tensor([5.0, 7.0], dtype=torch.float64, requires_grad=True)
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", handlers.scale, (one,))
            with forward_ad.dual_level():
                (gradient,) = autograd.grad(context_id, [(y * dual()).sum()], [one])
                assert parts_of(gradient) == ([10, 21], [2, 30])
        assert not rpc.rpc_sync("b", level_of_process)[1]
