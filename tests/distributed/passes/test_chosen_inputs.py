"""With chosen inputs a pass runs what leads to them, on every worker, and nothing else."""

import random

import numpy as np
import pytest
from tests.distributed import handlers, programs
from tests.distributed.passes.test_random_programs import WORKERS, run_once, same_bits
from tests.distributed.simulated import IN_ORDER, frames_sent, on_workers
from tests.distributed.soak import amount

import telegrad as tg
from telegrad.distributed import autograd, rpc
from telegrad.errors import GradientError

W = np.array([2.0, 3.0])
X = np.array([5.0, 7.0])
RAN = []
"""The labels of the operations that ran backward, of all workers: they share this process."""


@pytest.fixture(autouse=True)
def nothing_ran_yet():
    RAN.clear()


def x():
    return tg.tensor(X, requires_grad=True)


def value_of(tensor):
    return tensor.detach().numpy().tolist()


class Logged(tg.autograd.Function):
    """The identity, and a note that its backward ran."""

    @staticmethod
    def forward(ctx, value, label):
        ctx.label = label
        return value * 1.0

    @staticmethod
    def backward(ctx, g):
        RAN.append(ctx.label)
        return g, None


def logged(value, label):
    value.register_hook(lambda g: RAN.append(f"hook of {label}"))
    return Logged.apply(value, label)


def weigh(value):
    """One branch leads to what came, another to this worker's parameter alone."""
    me = rpc.get_worker_info().name
    weight = logged(handlers.parameter() * 1.0, f"weight of {me}")
    return logged(value * 1.0, f"value on {me}") * weight


def weigh_here_and_at(other, value):
    return rpc.rpc_sync(other, weigh, (weigh(value),))


def weigh_alone():
    """Leads to nothing but a parameter."""
    return logged(handlers.parameter() * 1.0, "parameter alone")


@pytest.mark.parametrize("mode", ["smart", "fast"])
@on_workers("main", "b", "c")
def test_what_leads_to_no_input_and_to_no_other_worker_does_not_run(mode):
    one, two = x(), x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", weigh_here_and_at, ("c", logged(one * 1.0, "one")))
        loss = (y * logged(two * 1.0, "two")).sum()
        (found,) = autograd.grad(context_id, loss, one, retain_graph=True, mode=mode)
        came_by = ["value on c", "value on b", "one"]
        expected = [line for name in came_by for line in (name, f"hook of {name}")]
        assert expected == RAN
        RAN.clear()
        autograd.backward(context_id, [loss], inputs=[one], retain_graph=True, mode=mode)
        assert len(RAN) == 6
        assert value_of(autograd.get_gradients(context_id)[one]) == value_of(found)
        # Nothing was lost for those who ask for more.
        autograd.backward(context_id, [loss], mode=mode)
        assert sum(1 for line in RAN if not line.startswith("hook")) == 3 + 6
        assert rpc.rpc_sync("c", handlers.gradient, (context_id,)) == (X * X * W).tolist()


@on_workers("main", "b", "c", faults=IN_ORDER)
def test_only_what_leads_to_a_reference_runs_on_its_owner_and_on_the_way():
    there = rpc.remote("b", handlers.fetch)
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", weigh_here_and_at, ("c", logged(one * 1.0, "one")))
        (found,) = autograd.grad(context_id, y.sum(), there)
        assert value_of(found) == (X * W).tolist()
        ran = {line for line in RAN if not line.startswith("hook")}
        # Whether the input lies behind what came to `b`, only `main` knows: it is asked.
        assert ran == {"value on c", "value on b", "weight of b"}
    del there


@on_workers("main", "b")
def test_an_input_in_the_middle_gets_its_gradient_but_does_not_run():
    one = x()
    with autograd.context() as context_id:
        middle = logged(one * 1.0, "middle")
        middle.grad_fn.register_prehook(lambda g: RAN.append("prehook"))
        middle.register_hook(lambda g: RAN.append("hook of the input"))
        y = rpc.rpc_sync("b", handlers.scale, (middle,))
        (found,) = autograd.grad(context_id, y.sum(), middle, retain_graph=True)
        assert value_of(found) == W.tolist()
        assert RAN == ["hook of the input"]
        # Its own inputs ask for more.
        both = autograd.grad(context_id, y.sum(), [middle, one])
        assert [value_of(g) for g in both] == [W.tolist(), W.tolist()]
        assert "prehook" in RAN


@on_workers("main", "b")
def test_grad_over_workers_does_not_run_the_node_of_a_leaf_nor_its_hooks():
    one = x()
    node = (one * 1.0).grad_fn.next_functions[0][0]
    node.register_prehook(lambda outputs: (outputs[0] * 10.0,))
    one.register_hook(lambda g: g + 1.0)
    expected = (W + 1.0).tolist()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,)).sum()
        (over_workers,) = autograd.grad(context_id, y, one, retain_graph=True)
        (taken_over,) = tg.autograd.grad(y, one, retain_graph=True)
        assert [value_of(over_workers), value_of(taken_over)] == [expected, expected]
        autograd.backward(context_id, [y], inputs=[one])
        assert value_of(autograd.get_gradients(context_id)[one]) == (10.0 * (W + 1.0)).tolist()


@on_workers("main", "b", "c")
def test_a_pass_stops_at_what_arrived_before_every_input(simulation):
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (x(),))
        z = rpc.rpc_sync("c", handlers.scale, (y * 2.0,))
        before = len(simulation.trace)
        (found,) = autograd.grad(context_id, (z * z).sum(), z, retain_graph=True)
        assert value_of(found) == (4 * X * W * W).tolist()
        assert frames_sent(simulation, before) == 0
        # The way from z to y leads over c, and no further.
        (found,) = autograd.grad(context_id, (z * y).sum(), y)
        assert value_of(found) == (4 * X * W * W).tolist()
        # The notice of the commit has time.
        simulation.sleep(1)
        assert frames_sent(simulation, before) == 3


@on_workers("main", "b")
def test_a_leaf_may_lie_behind_anything_that_arrived():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,))
        late = y * 1.0
        found = autograd.grad(context_id, (late * y).sum(), [late, one])
        assert [value_of(g) for g in found] == [(X * W).tolist(), (2 * X * W * W).tolist()]


@on_workers("main", "b")
def test_a_call_that_was_not_used_matters_only_where_an_input_waits_for_it():
    one, two = x(), x()
    with autograd.context() as context_id:
        loss = rpc.rpc_sync("b", handlers.scale, (one,)).sum() + two.sum()
        rpc.rpc_sync("b", handlers.scale, (one,))
        autograd.backward(context_id, [loss], inputs=[two], mode="fast", retain_graph=True)
        assert value_of(autograd.get_gradients(context_id)[two]) == [1.0, 1.0]
        with pytest.raises(GradientError, match="not used in computing the roots") as caught:
            autograd.backward(context_id, [loss], inputs=[one], mode="fast", retain_graph=True)
        # The unused answer of `b` leads to no input there, but to what came from here.
        assert "from 'main' to 'b'" in str(caught.value)
        autograd.backward(context_id, [loss], inputs=[one])
        assert value_of(autograd.get_gradients(context_id)[one]) == W.tolist()


@on_workers("main", "b")
def test_a_worker_without_an_input_before_or_behind_runs_nothing():
    one = x()
    with autograd.context() as context_id:
        loss = (rpc.rpc_sync("b", weigh_alone) * one).sum()
        (found,) = autograd.grad(context_id, loss, one, retain_graph=True)
        assert value_of(found) == W.tolist()
        assert RAN == []
        autograd.backward(context_id, [loss])
        assert RAN == ["parameter alone", "hook of parameter alone"]


@pytest.mark.parametrize("seed", range(amount(40, 2000)))
def test_chosen_inputs_get_the_bits_of_the_whole_pass_and_nobody_else_anything(seed):
    rng = random.Random(seed)
    placement = programs.random_placement(rng, WORKERS)
    whole = run_once(seed, placement, rng.randrange(10**6))
    for chosen in ([0], [1], [0, 1]):
        found = run_once(seed, placement, rng.randrange(10**6), chosen=chosen)
        same_bits(found, {i: whole[i] for i in chosen if i in whole})


@pytest.mark.parametrize("seed", range(amount(40, 2000)))
def test_chosen_inputs_get_what_grad_gives_in_one_process_up_to_rounding(seed):
    plain = programs.plain_gradients(seed, programs.program_of(seed), chosen=[1])
    placement = programs.random_placement(random.Random(seed), WORKERS)
    found = run_once(seed, placement, seed, chosen=[1])
    assert found.keys() == plain.keys()
    for name in plain:
        np.testing.assert_allclose(found[name], plain[name], rtol=1e-9, atol=1e-9)
