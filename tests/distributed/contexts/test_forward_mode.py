"""Forward mode over workers: duals are sent, levels have shadows, and nothing of them stays."""

import contextvars

import numpy as np
import pytest
from tests.distributed import handlers
from tests.distributed.simulated import IN_ORDER, on_workers
from tests.rpc.neighbours import eventually

import telegrad as tg
from telegrad.autograd import forward_ad
from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.errors import LevelError
from telegrad.tensors.forward.levels import Level

W = np.array([2.0, 3.0])
X = np.array([5.0, 7.0])


def constant(values):
    return tg.tensor(np.array(values))


def tangent(value, level=None):
    return forward_ad.unpack_dual(value, level=level).tangent


def numbers(value):
    return None if value is None else value.detach().numpy().tolist()


@pytest.mark.parametrize("in_context", [False, True], ids=["without a context", "in a context"])
@on_workers("main", "b", "c")
def test_a_dual_goes_through_several_workers_and_comes_back_with_its_tangent(in_context):
    def compute():
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(constant(X), constant([1.0, 10.0]))
            answer = rpc.rpc_sync("b", handlers.through, (["c"], dual))
            assert numbers(tangent(answer)) == [4.0, 90.0]
            assert numbers(forward_ad.unpack_dual(answer).primal) == (X * W * W).tolist()

    if in_context:
        with autograd.context():
            compute()
    else:
        compute()


@on_workers("main", "b", faults=IN_ORDER)
def test_duals_inside_of_containers_and_references_keep_their_tangents():
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(constant(X), constant([1.0, 1.0]))
        back = rpc.rpc_sync("b", handlers.same, ({"a": [dual, 3]},))
        assert numbers(tangent(back["a"][0])) == [1.0, 1.0]
        kept = rpc.remote("b", handlers.square, (dual,))
        assert numbers(tangent(kept.to_here())) == [10.0, 14.0]


@on_workers("main", "b")
def test_a_handler_makes_duals_at_the_level_of_its_caller():
    with forward_ad.dual_level():
        answer = rpc.rpc_sync("b", make_dual_there)
        assert numbers(tangent(answer)) == [6.0, 6.0]
    with pytest.raises(LevelError, match="expected an open dual level"):
        rpc.rpc_sync("b", make_dual_there)


def make_dual_there():
    dual = forward_ad.make_dual(constant([1.0, 1.0]), constant([2.0, 2.0]))
    return dual * dual * dual


@on_workers("main", "b")
def test_nested_levels_give_second_derivatives_and_never_mix():
    ones = constant([1.0, 1.0])
    with forward_ad.dual_level() as outer, forward_ad.dual_level() as inner:
        dual = forward_ad.make_dual(constant(X), ones, level=outer)
        dual = forward_ad.make_dual(dual, ones, level=inner)
        answer = rpc.rpc_sync("b", handlers.weigh_and_sum, (dual,))
        assert numbers(tangent(answer, outer)) == (3 * W * X * X).sum()
        assert numbers(tangent(answer, inner)) == (3 * W * X * X).sum()
        assert numbers(tangent(tangent(answer, inner), outer)) == (6 * W * X).sum()
        only_outer = forward_ad.make_dual(constant(X), ones, level=outer)
        assert tangent(rpc.rpc_sync("b", handlers.square, (only_outer,)), inner) is None


@on_workers("main", "b")
def test_a_level_of_the_handler_is_its_own_business():
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(constant(X), constant([1.0, 1.0]))
        answer = rpc.rpc_sync("b", derivative_there, (dual,))
        assert numbers(answer) == (3 * X * X).tolist()
        assert numbers(tangent(answer)) == (6 * X).tolist()


def derivative_there(x):
    """The derivative of x³ by a level of this handler alone."""
    with forward_ad.dual_level():
        y = forward_ad.make_dual(x, tg.ones_like(x))
        return tangent(y * y * y)


@on_workers("main", "b")
def test_handlers_that_run_at_once_keep_their_callers_levels_apart():
    futures = []
    for k in range(1, 6):

        def start(factor=float(k)):
            return rpc.rpc_async("main", differentiate_slowly, (factor,))

        futures.append(contextvars.copy_context().run(start))
    assert [future.wait() for future in futures] == [(2 * k * X * W).tolist() for k in range(1, 6)]


def differentiate_slowly(factor):
    simulation = rpc.current_worker().host.simulation
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(constant(X), constant(X) * factor)
        simulation.sleep(0.01 * factor)
        y = rpc.rpc_sync("b", handlers.scale, (dual,))
        simulation.sleep(0.1 / factor)
        return numbers(tangent(y * 2.0))


@on_workers("main", "b", "c")
def test_forward_over_reverse_gives_a_hessian_vector_product_across_workers():
    direction = constant([1.0, -2.0])
    with forward_ad.dual_level(), autograd.context() as context_id:
        x = tg.tensor(X, requires_grad=True)
        dual = forward_ad.make_dual(x, direction)
        y = rpc.rpc_sync("b", cube_after, ("c", dual))
        (g,) = autograd.grad(context_id, y, dual)
        np.testing.assert_allclose(numbers(g), 3 * X**2 * W**3)
        np.testing.assert_allclose(numbers(tangent(g)), 6 * X * W**3 * direction.numpy())


@on_workers("main", "b", "c")
def test_two_levels_over_reverse_give_a_third_derivative_across_workers():
    ones = constant([1.0, 1.0])
    with (
        forward_ad.dual_level() as outer,
        forward_ad.dual_level() as inner,
        autograd.context() as context_id,
    ):
        dual = forward_ad.make_dual(tg.tensor(X, requires_grad=True), ones, level=outer)
        dual = forward_ad.make_dual(dual, ones, level=inner)
        y = rpc.rpc_sync("b", cube_after, ("c", dual))
        (g,) = autograd.grad(context_id, y, dual)
        np.testing.assert_allclose(numbers(tangent(g, outer)), 6 * X * W**3)
        np.testing.assert_allclose(numbers(tangent(tangent(g, inner), outer)), 6 * W**3)


def cube_after(other, x):
    """The sum of (w·x)³, the product computed on another worker."""
    y = rpc.rpc_sync(other, handlers.scale, (x,))
    return (y * y * y).sum()


@on_workers("main", "b")
def test_reverse_over_forward_gives_the_same():
    with autograd.context() as context_id:
        x = tg.tensor(X, requires_grad=True)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, constant([1.0, -2.0]))
            slope = tangent(rpc.rpc_sync("b", handlers.weigh_and_sum, (dual,)))
            (g,) = autograd.grad(context_id, slope, x)
        np.testing.assert_allclose(numbers(g), 6 * W * X * np.array([1.0, -2.0]))


@on_workers("main", "b")
def test_what_arrives_after_its_level_closed_is_ordinary(simulation):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(constant(X), constant([1.0, 1.0]))
        late = rpc.rpc_async("b", square_slowly, (dual,))
    answer = late.wait()
    assert numbers(answer) == (X * X).tolist()
    with forward_ad.dual_level():
        assert tangent(answer) is None


def square_slowly(x):
    rpc.current_worker().host.simulation.sleep(1.0)
    return x * x


@on_workers("main", "b", "c")
def test_leaving_a_level_closes_its_shadows_wherever_they_went(simulation):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(constant(X), constant([1.0, 1.0]))
        rpc.rpc_sync("b", handlers.through, (["c"], dual))
        shadows = [handlers.leftovers(simulation.worker(name))["levels"] for name in "bc"]
        assert shadows == [1, 1]
    simulation.sleep(1.0)
    shadows = [handlers.leftovers(simulation.worker(name))["levels"] for name in "bc"]
    assert shadows == [0, 0]


@on_workers("main", "b", "c")
def test_the_shadows_of_a_worker_that_died_close(simulation):
    held = rpc.rpc_async("b", hold_a_level, ("c",))
    simulation.sleep(1.0)
    assert handlers.leftovers(simulation.worker("c"))["levels"] == 1
    simulation.crash("b")
    simulation.sleep(30.0)
    assert handlers.leftovers(simulation.worker("c"))["levels"] == 0
    with pytest.raises(ConnectionError):
        held.wait()


def hold_a_level(other):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(constant(X), constant([1.0, 1.0]))
        rpc.rpc_sync(other, handlers.square, (dual,))
        rpc.current_worker().host.simulation.sleep(1000.0)


@on_workers("main", "b", faults=IN_ORDER)
def test_tangents_of_values_that_arrived_are_gone_with_the_level():
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(constant(X), constant([1.0, 1.0]))
        kept = rpc.remote("b", handlers.square, (dual,))
        assert numbers(tangent(kept.to_here())) == [10.0, 14.0]
    with forward_ad.dual_level():
        assert tangent(kept.to_here()) is None


@pytest.mark.processes
def test_duals_are_sent_between_processes_too():
    with LocalCluster(["b", "c"]) as cluster:
        with autograd.context() as context_id, forward_ad.dual_level():
            x = tg.tensor(X, requires_grad=True)
            dual = forward_ad.make_dual(x, constant([1.0, -2.0]))
            y = rpc.rpc_sync("b", cube_after, ("c", dual))
            (g,) = autograd.grad(context_id, y, dual)
            np.testing.assert_allclose(numbers(tangent(g)), 6 * X * W**3 * np.array([1.0, -2.0]))
        for name in cluster.names:
            assert eventually(lambda n=name: rpc.rpc_sync(n, handlers.leftovers) == handlers.CLEAN)


@pytest.mark.parametrize("seed", range(8))
def test_a_level_that_closes_while_a_call_is_under_way_leaves_the_other_tensors_recorded(seed):
    @on_workers("main", "b", seed=seed)
    def program():
        x, w = tg.tensor(X, requires_grad=True), tg.tensor(W, requires_grad=True)
        with autograd.context() as context_id:
            with forward_ad.dual_level():
                dual = forward_ad.make_dual(x, constant([1.0, 10.0]))
                call = rpc.rpc_async("b", lambda x, w: (x * w, w * 3), (dual, w))
            scaled, tripled = call.wait()
            autograd.backward(context_id, [scaled.sum() + tripled.sum()])
            found = autograd.get_gradients(context_id)
            assert numbers(found[x]) == [2, 3]
            assert numbers(found[w]) == [8, 10]

    program()


@on_workers("main", "b")
def test_nested_levels_are_exact_where_the_inner_one_was_met_first():
    one = constant(X).requires_grad_()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,))
        with forward_ad.dual_level() as outer, forward_ad.dual_level() as inner:
            # A gradient that has a tangent of the inner level alone.
            weights = forward_ad.make_dual(constant(W), constant(X), level=inner)
            autograd.grad(context_id, y, one, weights)
            dual = forward_ad.make_dual(constant(X), constant([1.0, -2.0]), level=outer)
            dual = forward_ad.make_dual(dual, constant([0.5, 3.0]), level=inner)
            found = rpc.rpc_sync("b", handlers.square, (dual,))
            # The mixed second derivative of x² in these directions.
            assert numbers(tangent(tangent(found, inner), outer)) == [1.0, -12.0]


def test_a_level_entered_after_another_was_heard_of_is_further_in():
    heard = Level(depth=(1 << 40, 0))
    entered = Level()
    assert heard.depth < entered.depth < Level().depth


@pytest.mark.parametrize("closes", ["before", "after"])
@on_workers("main", "b", "c")
def test_a_level_closes_on_those_who_got_it_from_a_worker_that_died(simulation, closes):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(constant(X), constant(W))
        rpc.rpc_sync("b", handlers.through, (["c"], dual))
        simulation.crash("b")
        if closes == "after":
            simulation.sleep(30.0)
            # It has not closed too early, either.
            assert handlers.leftovers(simulation.worker("c"))["levels"] == 1
    simulation.sleep(30.0)
    assert handlers.leftovers(simulation.worker("c"))["levels"] == 0
