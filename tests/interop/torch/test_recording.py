"""Torch tensors in a context: what is recorded of a call, and where the gradients go."""

import dataclasses
import itertools
from functools import partial

import pytest
import torch
from tests.distributed.simulated import IN_ORDER, on_workers
from tests.interop.torch import handlers as handlers

import telegrad as tg
from telegrad.distributed import autograd, rpc
from telegrad.errors import (
    ContextError,
    DTypeError,
    GradientError,
    GraphFreedError,
    SavedValueChanged,
    Unserializable,
)
from telegrad.graph import Bundle
from telegrad.torch import from_torch


@dataclasses.dataclass
class Batch:
    values: object
    label: str


def x():
    return torch.tensor([5.0, 7.0], dtype=torch.float64, requires_grad=True)


def there(context_id):
    return rpc.rpc_sync("b", handlers.gradients, (context_id,))


@on_workers("main", "b", "c")
def test_calls_within_calls_are_recorded_and_grad_stays_untouched():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.forward_to, (["c"], one))
        assert not y.is_leaf
        autograd.backward(context_id, [y.sum()])
        assert autograd.get_gradients(context_id)[one].tolist() == [4, 9]
        assert there(context_id) == {"w": [10, 21]}
        assert one.grad is None
        assert rpc.rpc_sync("b", handlers.untouched)


@on_workers("main", "b")
def test_tensors_inside_of_objects_and_closures_are_recorded():
    one = x()
    with autograd.context() as context_id:
        batch = rpc.rpc_sync(
            "b", lambda b: Batch([one * b.values[0]], b.label), (Batch([one], ""),)
        )
        autograd.backward(context_id, [batch.values[0].sum()])
        assert autograd.get_gradients(context_id)[one].tolist() == [10, 14]


@on_workers("main", "b")
def test_a_parameter_and_a_module_as_arguments_are_recorded():
    model = handlers.Model()
    data = torch.ones(1, 3, dtype=torch.float64)
    expected = torch.autograd.grad(model(data).sum(), list(model.parameters()))
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", lambda module, data: module(data), (model, data))
        autograd.backward(context_id, [y.sum()])
        found = autograd.get_gradients(context_id)
        for parameter, gradient in zip(model.parameters(), expected):
            assert torch.allclose(found[parameter], gradient)


@on_workers("main", "b")
def test_what_arrived_may_be_changed_in_place():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.add_in_place, (one,))
        y *= 2
        autograd.backward(context_id, [y.sum()])
        assert one.tolist() == [5, 7]
        assert autograd.get_gradients(context_id)[one].tolist() == [4, 6]
        assert there(context_id) == {"w": [12, 16]}


@on_workers("main", "b")
def test_a_result_that_was_not_used_does_not_hold_up_the_pass():
    one = x()
    with autograd.context() as context_id:
        middle = one * 2
        rpc.rpc_sync("b", handlers.scale, (middle,))
        y = rpc.rpc_sync("b", handlers.scale, (middle,))
        with pytest.raises(GradientError, match="mode='fast'"):
            autograd.backward(context_id, [y.sum()], retain_graph=True, mode="fast")
        autograd.backward(context_id, [y.sum()])
        assert autograd.get_gradients(context_id)[one].tolist() == [4, 6]
        assert there(context_id) == {"w": [10, 14]}


@on_workers("main", "b")
def test_passes_accumulate_in_the_context_and_a_freed_graph_says_so():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one.sin(),)).sum()
        autograd.backward(context_id, [y], retain_graph=True)
        once = autograd.get_gradients(context_id)[one]
        autograd.backward(context_id, [y])
        assert autograd.get_gradients(context_id)[one].tolist() == (2 * once).tolist()
        with pytest.raises(GraphFreedError):
            autograd.backward(context_id, [y])


@on_workers("main", "b")
def test_a_torch_graph_freed_before_the_pass_is_an_error_and_leaves_no_gradient():
    one = x()
    middle = one.exp()
    loss = (middle * middle).sum()
    loss.backward()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (middle,))
        with pytest.raises(GraphFreedError, match="PyTorch graph"):
            autograd.backward(context_id, [y.sum()])
        assert dict(autograd.get_gradients(context_id)) == {}


@on_workers("main", "b")
def test_any_root_with_a_weight_and_chosen_inputs():
    one, other = x(), x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one * other,))
        weight = torch.tensor([1.0, 10.0], dtype=torch.float64)
        autograd.backward(context_id, [y], grad_tensors=[weight], inputs=[one], retain_graph=True)
        found = autograd.get_gradients(context_id)
        assert found[one].tolist() == [10, 210]
        assert other not in found
        assert there(context_id) == {}
        with pytest.raises(GradientError, match="scalar"):
            autograd.backward(context_id, [y])
        with pytest.raises(GradientError, match="expected torch tensors that require grad"):
            autograd.backward(context_id, [y.sum()], inputs=[torch.ones(2)])


@on_workers("main", "b")
def test_grad_with_respect_to_a_torch_parameter_that_lives_elsewhere():
    one = x()
    w = rpc.remote("b", handlers.parameter)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,)).sum()
        here, away = autograd.grad(context_id, [y], [one, w], retain_graph=True)
        assert here.tolist() == [2, 3]
        assert away.tolist() == [5, 7]
        assert dict(autograd.get_gradients(context_id)) == {}
        unused = x()
        with pytest.raises(GradientError, match="were not used"):
            autograd.grad(context_id, [y], [unused], retain_graph=True)
        (zeros,) = autograd.grad(context_id, [y], [unused], materialize_grads=True)
        assert zeros.tolist() == [0, 0]


@on_workers("main", "b")
def test_a_pass_can_start_from_a_reference_to_a_torch_tensor():
    one = x()
    with autograd.context() as context_id:
        y = rpc.remote("b", lambda v: handlers.scale(v).sum(), (one,))
        y.backward(context_id)
        assert autograd.get_gradients(context_id)[one].tolist() == [2, 3]


@on_workers("main", "b")
def test_bfloat16_is_differentiated():
    one = torch.tensor([1.0, 2.0], dtype=torch.bfloat16, requires_grad=True)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", lambda v: v * 3, (one * 2,))
        assert y.dtype is torch.bfloat16
        autograd.backward(context_id, [y.sum()])
        gradient = autograd.get_gradients(context_id)[one]
        assert gradient.dtype is torch.bfloat16
        assert gradient.tolist() == [6, 6]


@on_workers("main", "b")
def test_complex_tensors_are_differentiated_as_torch_does():
    one = torch.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    (expected,) = torch.autograd.grad((one * one * 1j).abs().sum(), one)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", lambda v: v * v * 1j, (one,))
        autograd.backward(context_id, [y.abs().sum()])
        assert torch.allclose(autograd.get_gradients(context_id)[one], expected)


@on_workers("main", "b")
def test_constants_integers_and_no_grad_leave_no_message():
    one = x()
    with autograd.context() as context_id:
        rpc.rpc_sync("b", handlers.same, ((torch.ones(2), torch.arange(3)),))
        with torch.no_grad():
            assert not rpc.rpc_sync("b", handlers.same, (one,)).requires_grad
        with tg.no_grad():
            assert not rpc.rpc_sync("b", handlers.scale, (one,)).requires_grad
        assert autograd._retrieve_context(context_id)._send_functions() == {}


@on_workers("main", "b")
def test_both_kinds_in_one_call_with_constants_between_them():
    one, own = x(), tg.tensor([1.0, 2.0], dtype=tg.float64, requires_grad=True)
    with autograd.context() as context_id:
        args = ([torch.arange(2), own, torch.ones(2), tg.ones(2), one],)
        out = rpc.rpc_sync("b", lambda v: [v[1] * 3, v[0], v[4] * 5], args)
        autograd.backward(context_id, [out[0].sum(), out[2].sum()])
        found = autograd.get_gradients(context_id)
        assert found[own].tolist() == [3, 3]
        assert found[one].tolist() == [5, 5]


@on_workers("main", "b")
def test_a_leaf_that_is_sent_twice_and_used_here_runs_its_hooks_on_the_whole():
    one = x()
    one.register_hook(lambda g: g.clamp(max=4))
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,)) + rpc.rpc_sync("b", handlers.scale, (one,))
        autograd.backward(context_id, [(y + one).sum()])
        # 2 + 2 + 1 and 3 + 3 + 1: each part is below the bound, the whole is not.
        assert autograd.get_gradients(context_id)[one].tolist() == [4, 4]


@on_workers("main", "b")
def test_a_hook_on_a_tensor_that_came_changes_what_goes_back():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,))
        y.register_hook(lambda g: g * 10)
        sent = rpc.rpc_sync("b", handlers.same, (y,))
        autograd.backward(context_id, [(sent + y).sum()])
        assert autograd.get_gradients(context_id)[one].tolist() == [40, 60]


@on_workers("main", "b")
def test_two_leaves_never_share_a_gradient():
    one, other = x(), x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.same, (one + other,))
        autograd.backward(context_id, [y.sum()])
        found = autograd.get_gradients(context_id)
        found[one].mul_(100)
        assert found[other].tolist() == [1, 1]


@on_workers("main", "b")
def test_a_plain_backward_of_torch_says_what_to_call_instead():
    one = x()
    with autograd.context():
        y = rpc.rpc_sync("b", handlers.scale, (one,))
        with pytest.raises(GradientError, match=r"autograd\.backward\(context_id, \[loss\]\)"):
            y.sum().backward()
        assert one.grad is None


@on_workers("main", "b")
def test_a_plain_backward_of_telegrad_over_torch_runs_the_distributed_pass():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one * 2,))
        from_torch(y).sum().backward()
        assert autograd.get_gradients(context_id)[one].tolist() == [4, 6]
        assert one.grad.tolist() == [4, 6]
        assert there(context_id) == {"w": [10, 14]}
        assert rpc.rpc_sync("b", handlers.untouched)


@on_workers("main", "b")
def test_a_sparse_tensor_is_differentiated():
    value = torch.eye(2, dtype=torch.float64).to_sparse().requires_grad_()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.same, (value,))
        assert y.is_sparse
        y = rpc.rpc_sync("b", handlers.scale, (y.to_dense(),))
        autograd.backward(context_id, [y.sum()])
        gradient = autograd.get_gradients(context_id)[value]
        # Of the entries that it has, as PyTorch gives it.
        assert gradient.to_dense().tolist() == [[2, 0], [0, 3]]


@on_workers("main", "b")
def test_a_sparse_tensor_without_dimensions_has_a_sparse_gradient():
    value = torch.tensor(3.0, dtype=torch.float64).to_sparse().requires_grad_()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.same, (value,)).to_dense()
        autograd.backward(context_id, [y * y])
        gradient = autograd.get_gradients(context_id)[value]
        assert gradient.is_sparse
        assert gradient.to_dense().item() == 6


@on_workers("main", "b")
def test_the_gradient_of_a_sparse_tensor_is_differentiated_again_over_the_same_wire():
    value = torch.tensor([[0.0, 2.0], [3.0, 0.0]], dtype=torch.float64).to_sparse()
    value.requires_grad_()
    with autograd.context() as context_id:
        cubes = rpc.rpc_sync("b", handlers.same, (value,)).to_dense() ** 3
        (slope,) = autograd.grad(context_id, [cubes.sum()], [value], create_graph=True)
        squares = rpc.rpc_sync("b", handlers.same, (slope,)).to_dense() ** 2
        autograd.backward(context_id, [squares.sum()])
        # (3v²)² = 9v⁴
        gradient = autograd.get_gradients(context_id)[value]
        assert gradient.to_dense().tolist() == [[0, 36 * 8], [36 * 27, 0]]


@on_workers("main", "b")
def test_a_hook_of_a_leaf_that_is_only_sent_runs_once():
    one = x()
    seen = []
    one.register_hook(lambda g: seen.append(g.tolist()) or g * 10)
    with autograd.context() as context_id:
        autograd.backward(context_id, [rpc.rpc_sync("b", handlers.scale, (one,)).sum()])
        assert autograd.get_gradients(context_id)[one].tolist() == [20, 30]
        assert seen == [[2, 3]]


@on_workers("main", "b")
def test_a_sparse_gradient_of_a_leaf_is_kept():
    table = torch.nn.Embedding(4, 2, sparse=True)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.same, (table(torch.tensor([1, 1, 3])),))
        autograd.backward(context_id, [y.sum()])
        gradient = autograd.get_gradients(context_id)[table.weight]
        assert gradient.to_dense().tolist() == [[0, 0], [2, 2], [0, 0], [1, 1]]


@pytest.mark.parametrize(
    "order", [*itertools.permutations(("rows", "rows sent", "table", "sent"), 3)]
)
@pytest.mark.parametrize("is_leaf", [True, False])
@pytest.mark.parametrize("passes", [1, 3])
def test_sparse_and_dense_gradients_of_one_table_add_up_in_any_order(order, is_leaf, passes):
    def losses_of(weight, send):
        table = weight if is_leaf else weight * 2
        look_up = partial(torch.nn.functional.embedding, torch.tensor([1, 1, 3]), sparse=True)
        makers = {
            "rows": lambda: look_up(table),
            "rows sent": lambda: send(look_up(table)),
            "table": lambda: table * 3,
            "sent": lambda: send(table),
        }
        return [makers[name]().sum() for name in order]

    expected = torch.ones(4, 2, dtype=torch.float64, requires_grad=True)
    sum(losses_of(expected, lambda value: value)).backward()

    @on_workers("main", "b")
    def program():
        weight = torch.ones(4, 2, dtype=torch.float64, requires_grad=True)
        with autograd.context() as context_id:
            losses = losses_of(weight, lambda value: rpc.rpc_sync("b", handlers.same, (value,)))
            for each in [[sum(losses)]] if passes == 1 else [[loss] for loss in losses]:
                autograd.backward(context_id, each, retain_graph=True)
            gradient = autograd.get_gradients(context_id)[weight]
            assert gradient.layout is expected.grad.layout
            assert torch.equal(gradient.to_dense(), expected.grad.to_dense())

    program()


def test_bundles_add_sparse_and_dense_parts_in_either_order():
    dense = torch.ones(2, 2)
    parts = [Bundle((dense.to_sparse(), None)), Bundle((dense, None))]
    for a, b in (parts, parts[::-1]):
        assert torch.equal((a + b)[0], dense * 2)


def test_a_dense_gradient_is_added_to_a_sparse_one_that_a_leaf_has():
    weight = torch.ones(4, 2, requires_grad=True)
    torch.nn.functional.embedding(torch.tensor([1]), weight, sparse=True).sum().backward()
    from_torch(weight).sum().backward()
    assert weight.grad.tolist() == [[1, 1], [2, 2], [1, 1], [1, 1]]


@on_workers("main", "b")
def test_a_value_that_was_changed_in_place_before_the_pass_is_an_error():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,))
        rpc.rpc_sync("b", handlers.add_to_parameter)
        with pytest.raises(SavedValueChanged, match="in place"):
            autograd.backward(context_id, [y.sum()])


@on_workers("main", "b")
def test_what_cannot_travel_leaves_no_message_behind():
    with autograd.context() as context_id:
        with pytest.raises(Unserializable, match="on meta"):
            rpc.rpc_sync("b", handlers.same, (torch.ones(2, device="meta", requires_grad=True),))
        assert autograd._retrieve_context(context_id)._send_functions() == {}


@on_workers("main", "b")
def test_bad_roots_and_tensors_of_another_context_are_refused():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,))
        with pytest.raises(GradientError, match="requires grad"):
            autograd.backward(context_id, [torch.ones(())])
        with pytest.raises(DTypeError, match="got str"):
            autograd.backward(context_id, ["loss"])
    with autograd.context() as context_id, pytest.raises(ContextError, match="one context"):
        autograd.backward(context_id, [y.sum()])


@on_workers("main", "b")
def test_a_failure_in_torch_reaches_the_root_and_leaves_no_gradient():
    one = x()

    def broken(v):
        y = v * handlers.parameter()
        y.register_hook(lambda g: 1 / 0)
        return y * 2

    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", broken, (one,))
        with pytest.raises(ZeroDivisionError):
            autograd.backward(context_id, [y.sum()])
        assert dict(autograd.get_gradients(context_id)) == {}
        assert there(context_id) == {}


@pytest.mark.filterwarnings("ignore::UserWarning")
@on_workers("main", "b")
def test_a_result_that_cannot_travel_is_an_error_of_the_call():
    with pytest.raises(Unserializable, match="sparse_csr"):
        rpc.rpc_sync("b", lambda: torch.eye(2).to_sparse_csr())


@on_workers("main", "b")
def test_the_summary_of_a_contexts_gradients_shows_those_of_torch():
    one = x()
    half = torch.ones(2, dtype=torch.bfloat16, requires_grad=True)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (one,)).sum()
        z = rpc.rpc_sync("b", handlers.same, (half,)).sum()
        autograd.backward(context_id, [y, z])
        found = autograd.gradients(context_id).by_worker
        assert sorted(row.norm for row in found["main"]) == pytest.approx([2**0.5, 13**0.5])
        assert [row.norm for row in found["b"]] == pytest.approx([74**0.5])


class Elsewhere(torch.nn.Module):
    """As RemoteModule does."""

    def named_parameters(self, *args, **kwargs):
        raise ValueError("Method ``named_parameters`` not supported for RemoteModule")


@on_workers("main", "b", faults=IN_ORDER)
def test_parameters_of_modules_that_references_lead_to_have_their_names():
    net = rpc.remote("b", torch.nn.Sequential, (torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)))
    elsewhere = rpc.remote("b", Elsewhere)
    with autograd.context() as context_id:
        loss = net.rpc_sync().forward(torch.ones(1, 2)).sum()
        autograd.backward(context_id, [loss])
        rows = autograd.gradients(context_id).by_worker["b"]
        picture = str(autograd.draw(context_id, loss))
    assert [row.name for row in rows] == [
        f"Sequential.{i}.{name}" for i in (0, 1) for name in ("bias", "weight")
    ]
    assert 'label="weight 3×2"' in picture
    assert isinstance(elsewhere.to_here(), Elsewhere)


class Tripled(torch.autograd.Function):
    """A node that Python defines: it does not keep what is behind it alive by itself."""

    @staticmethod
    def forward(ctx, x):
        return 3.0 * x

    @staticmethod
    def backward(ctx, gradient):
        return 3.0 * gradient


def tripled(x):
    return Tripled.apply(x * 2.0)


@on_workers("main", "b")
def test_a_function_of_the_users_may_be_the_last_that_a_handler_runs():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", tripled, (one,))
        autograd.backward(context_id, [y.sum()])
        assert autograd.get_gradients(context_id)[one].tolist() == [6, 6]


@on_workers("main", "b")
def test_a_function_of_the_users_that_is_differentiable_once_goes_by_value():
    class Cubed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, one):
            ctx.save_for_backward(one)
            return one**3

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, gradient):
            return gradient * 3 * ctx.saved_tensors[0] ** 2

    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", lambda value: Cubed.apply(value), (one,))
        autograd.backward(context_id, [y.sum()])
        assert autograd.get_gradients(context_id)[one].tolist() == [75, 147]
