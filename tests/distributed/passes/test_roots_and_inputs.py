"""From which roots, to which inputs, how often: the arguments of backward and grad."""

import numpy as np
import pytest
from tests.distributed import handlers
from tests.distributed.simulated import IN_ORDER, on_workers

import telegrad as tg
from telegrad.distributed import autograd, rpc
from telegrad.errors import GradientError, GraphFreedError, UsageError

W = np.array([2.0, 3.0])
X = np.array([5.0, 7.0])


def x():
    return tg.tensor(X, requires_grad=True)


def value_of(tensor):
    return tensor.detach().numpy().tolist()


# Roots.


@on_workers("main", "b")
def test_several_roots_and_a_root_named_twice_add_up():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,)).sum()
        z = (one * one).sum()
        autograd.backward(context_id, [y, z, y])
        assert value_of(autograd.get_gradients(context_id)[one]) == (2 * W + 2 * X).tolist()


@on_workers("main", "b")
def test_a_single_tensor_is_a_root_without_a_list():
    one = x()
    with autograd.context() as context_id:
        autograd.backward(context_id, rpc.rpc_sync("b", handlers.scale, (one,)).sum())
        assert value_of(autograd.get_gradients(context_id)[one]) == W.tolist()


@on_workers("main", "b")
def test_a_leaf_may_be_a_root():
    one = tg.tensor(np.array(3.0), requires_grad=True)
    with autograd.context() as context_id:
        rpc.rpc_sync("b", handlers.scale, (one,))
        autograd.backward(context_id, [one])
        assert value_of(autograd.get_gradients(context_id)[one]) == 1.0


@on_workers("main", "b")
def test_what_arrived_may_be_a_root_with_a_gradient_of_its_own():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,))
        autograd.backward(context_id, [y], grad_tensors=[tg.tensor(np.array([1.0, -1.0]))])
        assert value_of(autograd.get_gradients(context_id)[one]) == [2.0, -3.0]
        assert rpc.rpc_sync("b", handlers.gradient, (context_id,)) == [5.0, -7.0]


@on_workers("main", "b")
def test_a_pass_may_start_on_a_worker_that_did_not_open_the_context():
    one = x()

    def finish(y, context_id):
        autograd.backward(context_id, [(y * y).sum()])
        return handlers.gradient(context_id)

    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,))
        assert rpc.rpc_sync("b", finish, (y, context_id)) == (2 * X * X * W).tolist()
        assert value_of(autograd.get_gradients(context_id)[one]) == (2 * X * W * W).tolist()


# retain_graph.


@on_workers("main", "b")
def test_numbers_may_stand_for_the_flags_of_a_pass():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,))
        (first,) = autograd.grad(context_id, (y * y).sum(), one, retain_graph=1, create_graph=1)
        autograd.backward(context_id, [first.sum()], 0)
        assert value_of(autograd.get_gradients(context_id)[one]) == (2 * W * W).tolist()


@on_workers("main", "b")
def test_a_second_pass_needs_a_retained_graph_and_adds_to_the_first():
    one = x()
    with autograd.context() as context_id:
        loss = rpc.rpc_sync("b", handlers.scale, (one,)).sum()
        autograd.backward(context_id, [loss], retain_graph=True)
        autograd.backward(context_id, [loss])
        assert value_of(autograd.get_gradients(context_id)[one]) == (2 * W).tolist()
        with pytest.raises(GraphFreedError, match="retain_graph=True"):
            autograd.backward(context_id, [loss])
        assert value_of(autograd.get_gradients(context_id)[one]) == (2 * W).tolist()
        assert rpc.rpc_sync("b", handlers.gradient, (context_id,)) == (2 * X).tolist()


KEPT = []


def fetch_and_keep(other):
    KEPT[:] = [rpc.rpc_sync(other, handlers.fetch)]
    return KEPT[0] + 1.0


def use_what_was_kept():
    return KEPT.pop() + 2.0


@pytest.mark.parametrize("seed", range(10))
def test_what_a_pass_freed_is_freed_for_the_next_though_word_of_its_end_is_still_under_way(seed):
    """The next reaches ``c`` by way of ``b``, and may be there before the notice of ``main``."""

    @on_workers("main", "b", "c", seed=seed, faults=IN_ORDER)
    def program():
        with autograd.context() as context_id:
            first = rpc.rpc_sync("b", fetch_and_keep, ("c",)).sum()
            second = rpc.rpc_sync("b", use_what_was_kept).sum()
            autograd.backward(context_id, [first])
            with pytest.raises(GraphFreedError, match="retain_graph=True"):
                autograd.backward(context_id, [second])
            assert rpc.rpc_sync("c", handlers.gradient, (context_id,)) == [1.0, 1.0]

    program()


# inputs.


@on_workers("main", "b")
def test_with_inputs_only_those_receive_a_gradient_on_any_worker():
    one, two = x(), x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one * two,))
        autograd.backward(context_id, [y.sum()], inputs=[two])
        found = autograd.get_gradients(context_id)
        assert list(found) == [two]
        assert value_of(found[two]) == (X * W).tolist()
        assert rpc.rpc_sync("b", handlers.gradient, (context_id,)) is None


@on_workers("main", "b")
def test_an_input_may_be_a_value_on_the_way():
    one = x()
    with autograd.context() as context_id:
        middle = one * 2.0
        y = rpc.rpc_sync("b", handlers.scale, (middle,))
        autograd.backward(context_id, [y.sum()], inputs=[middle])
        found = autograd.get_gradients(context_id)
        assert list(found) == [middle]
        assert value_of(found[middle]) == W.tolist()


@on_workers("main", "b")
def test_backward_runs_the_hooks_of_the_node_of_an_input_and_grad_does_not():
    seen = []
    with autograd.context() as context_id:
        middle = x() * 2.0
        middle.grad_fn.register_prehook(lambda outputs: (outputs[0] * 10.0,))
        middle.grad_fn.register_hook(lambda inputs, outputs: seen.append((inputs, outputs)))
        loss = rpc.rpc_sync("b", handlers.scale, (middle,)).sum()
        (found,) = autograd.grad(context_id, loss, middle, retain_graph=True)
        assert seen == []
        autograd.backward(context_id, [loss], inputs=[middle])
        ((inputs, (output,)),) = seen
        assert inputs == (None, None)
        assert value_of(output) == (10 * W).tolist()
        gradient = autograd.get_gradients(context_id)[middle]
        assert value_of(found) == value_of(gradient) == W.tolist()


@on_workers("main", "b")
def test_an_input_may_be_what_arrived():
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (x(),))
        (found,) = autograd.grad(context_id, (y * y).sum(), y)
        assert value_of(found) == (2 * X * W).tolist()


# grad.


@on_workers("main", "b", "c", faults=IN_ORDER)
def test_grad_takes_tensors_and_references_and_keeps_the_context_as_it_was():
    one = x()
    there = rpc.remote("b", handlers.fetch)
    further = rpc.remote("c", handlers.fetch)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.through, (["c"], one))
        found = autograd.grad(context_id, [y], [further, one, there], [tg.ones_like(y).detach()])
        assert [value_of(g) for g in found] == [
            (X * W).tolist(),
            (W * W).tolist(),
            (X * W).tolist(),
        ]
        assert autograd.get_gradients(context_id) == {}
        assert rpc.rpc_sync("b", handlers.gradient, (context_id,)) is None
    del there, further


@on_workers("main", "b", faults=IN_ORDER)
def test_two_references_to_one_tensor_both_get_its_gradient():
    there, again = rpc.remote("b", handlers.fetch), rpc.remote("b", handlers.fetch)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (x(),))
        found = autograd.grad(context_id, y.sum(), [there, again], materialize_grads=True)
        assert [value_of(g) for g in found] == [X.tolist()] * 2
    del there, again


@on_workers("main", "b", faults=IN_ORDER)
def test_a_reference_may_lie_behind_what_arrived_before_an_input_of_this_worker():
    there = rpc.remote("b", handlers.fetch)
    with autograd.context() as context_id:
        middle = rpc.rpc_sync("b", handlers.scale, (x(),)) * 2.0
        found = autograd.grad(context_id, middle.sum(), [middle, there])
        assert [value_of(each) for each in found] == [[1.0, 1.0], (2 * X).tolist()]
    del there


@on_workers("main", "b", faults=IN_ORDER)
def test_a_reference_whose_value_is_being_computed_is_waited_for():
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (x(),))
        there = rpc.remote("b", fetch_slowly)
        (found,) = autograd.grad(context_id, y.sum(), there)
        assert value_of(found) == X.tolist()
    del there


@pytest.mark.parametrize("seed", range(8))
def test_a_pass_may_come_to_an_owner_before_the_call_that_makes_the_input(seed):
    @on_workers("main", "b", "c", seed=seed, faults=IN_ORDER)
    def run():
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", handlers.through, (["c"], x()))
            there = rpc.remote("c", handlers.fetch)
            (found,) = autograd.grad(context_id, y.sum(), there)
            assert value_of(found) == (X * W).tolist()
        del there

    run()


def fetch_slowly():
    rpc.current_worker().host.simulation.sleep(2.0)
    return handlers.fetch()


@on_workers("main", "b", faults=IN_ORDER)
def test_gradients_of_references_may_stay_where_they_are():
    there = rpc.remote("b", handlers.fetch)
    own = rpc.RRef(x())
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (own.local_value(),))
        found, mine = autograd.grad(context_id, y.sum(), [there, own], as_rrefs=True)
        assert found.owner_name() == "b"
        assert value_of(found.to_here()) == X.tolist()
        assert value_of(mine) == W.tolist()
    del there, own, found


@on_workers("main", "b", faults=IN_ORDER)
def test_inputs_that_were_not_used_are_an_error_or_none_or_zeros():
    one, idle = x(), x()
    there = rpc.remote("b", handlers.fetch, ("idle",))
    inputs = [one, idle, there]
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,)).sum()

        def ask(**options):
            return autograd.grad(context_id, y, inputs, retain_graph=True, **options)

        with pytest.raises(GradientError, match=r"inputs \[1, 2\] were not used"):
            ask()
        first, second, third = ask(allow_unused=True)
        assert (value_of(first), second, third) == (W.tolist(), None, None)
        first, second, third = ask(materialize_grads=True)
        assert [value_of(g) for g in (first, second, third)] == [W.tolist(), [0.0] * 2, [0.0] * 2]


@on_workers("main", "b", faults=IN_ORDER)
def test_recorded_zeros_can_be_differentiated_as_the_other_gradients():
    one, idle = x(), x()
    there = rpc.remote("b", handlers.fetch, ("idle",))
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,))
        options = {"create_graph": True, "materialize_grads": True}
        first = autograd.grad(context_id, (y * y).sum(), [one, idle, there], **options)
        second = [autograd.grad(context_id, g.sum(), one, **options)[0] for g in first]
        assert [value_of(g) for g in second] == [(2 * W * W).tolist(), [0.0] * 2, [0.0] * 2]
    del there


@on_workers("main", "b", "c", faults=IN_ORDER)
def test_zeros_of_references_may_stay_where_they_are_and_are_no_messages():
    idle = [rpc.remote(name, handlers.fetch, ("idle",)) for name in "bc"]
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (x(),)).sum()
        before = list(autograd._retrieve_context(context_id)._recv_functions())
        options = {"retain_graph": True, "as_rrefs": True}
        found = autograd.grad(context_id, y, idle, allow_unused=True, **options)
        assert found == (None, None)
        found = autograd.grad(context_id, y, idle, materialize_grads=True, **options)
        assert [each.owner_name() for each in found] == ["b", "c"]
        assert [value_of(each.to_here()) for each in found] == [[0.0] * 2] * 2
        found = autograd.grad(context_id, y, idle, materialize_grads=True)
        assert [value_of(each) for each in found] == [[0.0] * 2] * 2
        assert list(autograd._retrieve_context(context_id)._recv_functions()) == before
    del idle


@pytest.mark.parametrize("mode", [tg.no_grad, tg.inference_mode])
def test_gradients_of_references_are_the_same_where_nothing_is_recorded(mode):
    @on_workers("main", "b", "c", faults=IN_ORDER)
    def test():
        there, idle = rpc.remote("b", handlers.fetch), rpc.remote("c", handlers.fetch)
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", handlers.scale, (x(),))
            y = (y * y).sum()
            with mode():
                first, unused = autograd.grad(
                    context_id, y, [there, idle], create_graph=True, allow_unused=True
                )
            assert (value_of(first), unused) == ((2 * X * W * X).tolist(), None)
            (second,) = autograd.grad(context_id, first.sum(), there)
            assert value_of(second) == (2 * X * X).tolist()
        del there, idle

    test()


@pytest.mark.parametrize("owner", ["b", "c"])
@pytest.mark.parametrize("options", [{}, {"allow_unused": True}, {"materialize_grads": True}])
@on_workers("main", "b", "c", faults=IN_ORDER)
def test_a_reference_that_leads_to_no_tensor_that_requires_grad_is_refused(owner, options):
    """Whether the pass comes to its owner, as to `b`, or not."""
    no_tensor = rpc.remote(owner, dict)
    constant = rpc.remote(owner, tg.ones, ((2,),))
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (x(),)).sum()
        with pytest.raises(TypeError, match=r"expected an RRef to a Tensor .* got one to dict"):
            autograd.grad(context_id, y, no_tensor, retain_graph=True, **options)
        for inputs in (constant, constant.to_here()):
            with pytest.raises(GradientError, match="tensors that require grad as inputs"):
                autograd.grad(context_id, y, inputs, retain_graph=True, **options)
    del no_tensor, constant


@on_workers("main", "b")
def test_grad_refuses_what_is_no_input():
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (x(),)).sum()
        with pytest.raises(TypeError, match=r"a Tensor or an RRef to one as inputs\[0\], got str"):
            autograd.grad(context_id, y, ["x"])
        with pytest.raises(UsageError, match="at least one tensor or RRef in inputs"):
            autograd.grad(context_id, y, [])
        with pytest.raises(UsageError, match="at least one tensor in inputs"):
            autograd.backward(context_id, y, inputs=[])
        with pytest.raises(GradientError, match="tensors that require grad"):
            autograd.grad(context_id, y, [tg.tensor(1.0)])


# Starting from a reference.


@on_workers("main", "b", faults=IN_ORDER)
def test_backward_of_a_reference_runs_where_its_value_is():
    one = x()
    with autograd.context() as context_id:
        loss = rpc.remote("b", lambda t: handlers.scale(t).sum(), (one,))
        loss.backward(context_id)
        assert value_of(autograd.get_gradients(context_id)[one]) == W.tolist()
        assert rpc.rpc_sync("b", handlers.gradient, (context_id,)) == X.tolist()
    del loss


@on_workers("main", "b", faults=IN_ORDER)
def test_backward_of_an_own_reference_and_a_retained_one():
    one = x()
    with autograd.context() as context_id:
        loss = rpc.RRef(rpc.rpc_sync("b", handlers.scale, (one,)).sum())
        loss.backward(context_id, retain_graph=True)
        loss.backward(context_id)
        assert value_of(autograd.get_gradients(context_id)[one]) == (2 * W).tolist()
    del loss


@on_workers("main", "b", faults=IN_ORDER)
def test_backward_of_a_reference_without_a_context_is_a_plain_one_there():
    loss = rpc.remote("b", lambda: (handlers.parameter() * 3.0).sum())
    loss.backward()
    assert rpc.rpc_sync("b", lambda: value_of(handlers.parameter().grad)) == [3.0, 3.0]
    wrong = rpc.remote("b", dict)
    with pytest.raises(TypeError, match="got one to dict"):
        wrong.backward()
    del loss, wrong
