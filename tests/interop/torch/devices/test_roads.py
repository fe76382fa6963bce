"""What goes through segments: plain tensors, sparse ones, tangents, gradients of every order.

The device is the host's memory, see ``pretended.py``.
"""

from contextlib import nullcontext

import pytest
import torch
from tests.distributed.simulated import IN_ORDER, on_workers
from tests.interop.torch import handlers as handlers
from tests.interop.torch.devices.pretended import Pretended
from torch.autograd import forward_ad

from telegrad.autograd import set_detect_anomaly
from telegrad.distributed import autograd, rpc
from telegrad.errors import AnomalyError, DTypeError, GradientError, ShapeError

X = (5.0, 7.0)


def leaf(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def cube(value):
    return value * value * value


def cube_elsewhere(value):
    return rpc.rpc_sync("c", cube, (value,))


def same(value):
    return value


@on_workers("main", "b", "c", faults=IN_ORDER)
def test_gradients_of_three_orders_stay_on_the_device(simulation):
    with Pretended(simulation, "main", "b", "c") as device:
        one = leaf(*X)
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", cube_elsewhere, (one,))
            orders = [y]
            for _ in range(3):
                orders += autograd.grad(context_id, [orders[-1].sum()], [one], create_graph=True)
            assert [each.tolist() for each in orders[1:]] == [[75, 147], [30, 42], [6, 6]]
        assert device.sent() > 12


@on_workers("main", "b", faults=IN_ORDER)
def test_calls_to_oneself_have_the_same_orders(simulation):
    with Pretended(simulation, "main", "b"):
        one = leaf(*X)
        with autograd.context() as context_id:
            y = rpc.rpc_sync("main", cube, (rpc.rpc_sync("b", same, (one,)),))
            (first,) = autograd.grad(context_id, [y.sum()], [one], create_graph=True)
            (second,) = autograd.grad(context_id, [first.sum()], [one])
            assert (first.tolist(), second.tolist()) == ([75, 147], [30, 42])


@on_workers("main", "b", faults=IN_ORDER)
def test_plain_gradients_of_a_recorded_one_return_to_all_leaves(simulation):
    with Pretended(simulation, "main", "b"):
        a, b = leaf(*X), leaf(2.0, 3.0)
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", lambda x, y: (x * x * y, x * y), (a, b))
            loss = y[0].sum() + (y[1] ** 2).sum()
            first, other = autograd.grad(context_id, [loss], [a, b], create_graph=True)
            autograd.backward(context_id, [(first * other).sum()])
            found = autograd.get_gradients(context_id)
        c, d = leaf(*X), leaf(2.0, 3.0)
        loss = (c * c * d).sum() + ((c * d) ** 2).sum()
        first, other = torch.autograd.grad(loss, [c, d], create_graph=True)
        expected = torch.autograd.grad((first * other).sum(), [c, d])
        assert torch.equal(found[a], expected[0])
        assert torch.equal(found[b], expected[1])


def dual(primal=X, tangent=(1.0, 10.0)):
    primal = torch.tensor(primal, dtype=torch.float64)
    return forward_ad.make_dual(primal, torch.tensor(tangent, dtype=torch.float64))


def parts_of(value):
    primal, tangent = forward_ad.unpack_dual(value)
    return primal.tolist(), tangent.tolist()


@pytest.mark.parametrize("in_context", [False, True])
def test_tangents_stay_on_the_device(in_context):
    @on_workers("main", "b", "c", faults=IN_ORDER)
    def program(simulation):
        with Pretended(simulation, "main", "b", "c") as device, forward_ad.dual_level():
            if in_context:
                with autograd.context():
                    found = rpc.rpc_sync("b", cube_elsewhere, (dual(),))
            else:
                found = rpc.rpc_sync("b", cube_elsewhere, (dual(),))
            assert parts_of(found) == ([125, 343], [75, 1470])
            # Primal and tangent of each message in one segment.
            assert device.sent() == 4

    program()


@on_workers("main", "b", faults=IN_ORDER)
def test_duals_beside_other_tensors_arrive_as_they_were(simulation):
    with Pretended(simulation, "main", "b"), forward_ad.dual_level():
        plain = torch.ones(2)
        found = rpc.rpc_sync("b", same, ({"x": [plain, dual(), plain, dual((1.0,), (2.0,))]},))
        found = found["x"]
        assert parts_of(found[1]) == ([5, 7], [1, 10])
        assert parts_of(found[3]) == ([1], [2])
        assert found[0] is found[2]
        assert found[0].tolist() == [1, 1]


@pytest.mark.parametrize("create_graph", [False, True])
def test_tangents_of_gradients_stay_on_the_device(create_graph):
    @on_workers("main", "b", faults=IN_ORDER)
    def program(simulation):
        with Pretended(simulation, "main", "b"):
            one, direction = leaf(*X), torch.tensor([1.0, 10.0], dtype=torch.float64)
            with autograd.context() as context_id, forward_ad.dual_level():
                x = forward_ad.make_dual(one, direction)
                y = rpc.rpc_sync("b", cube, (x,))
                options = {"create_graph": create_graph}
                (gradient,) = autograd.grad(context_id, [y.sum()], [one], **options)
                # 3 x², and its derivative 6 x t.
                assert parts_of(gradient) == ([75, 147], [30, 420])
                if create_graph:
                    primal, tangent = forward_ad.unpack_dual(gradient)
                    (second,) = autograd.grad(context_id, [primal.sum() + tangent.sum()], [one])
                    assert forward_ad.unpack_dual(second).primal.tolist() == [36, 102]

    program()


def sparse(requires_grad=False):
    indices, values = [[0, 2, 0], [1, 0, 1]], [3.0, 4.0, 5.0]
    return torch.sparse_coo_tensor(indices, values, (3, 2), requires_grad=requires_grad)


@pytest.mark.parametrize(
    "value",
    [
        sparse(),
        sparse().coalesce(),
        torch.sparse_coo_tensor([[1]], [[2.0, 3.0]], (4, 2)),
        torch.sparse_coo_tensor(torch.zeros(2, 0, dtype=torch.int64), [], (3, 2)),
        sparse().bfloat16(),
        sparse(requires_grad=True),
    ],
    ids=["plain", "coalesced", "hybrid", "empty", "bfloat16", "leaf"],
)
def test_sparse_tensors_stay_on_the_device(value):
    @on_workers("main", "b", faults=IN_ORDER)
    def program(simulation):
        with Pretended(simulation, "main", "b") as device:
            found = rpc.rpc_sync("b", same, (value,))
            assert device.sent() == 2
        assert found.is_coalesced() == value.is_coalesced()
        assert found.dtype is value.dtype
        assert found.shape == value.shape
        assert found.requires_grad == value.requires_grad
        found, given = found.detach(), value.detach()
        assert torch.equal(found._indices(), given._indices())
        assert torch.equal(found._values(), given._values())

    program()


class Table:
    """The weights of an embedding on another worker."""

    weight = None


def looked_up(places):
    Table.weight = torch.nn.Parameter(torch.arange(12.0).reshape(4, 3))
    return torch.nn.functional.embedding(places, Table.weight, sparse=True)


def gradient_of_table(context_id):
    return autograd.get_gradients(context_id)[Table.weight]


def looked_up_in(weight, places):
    return torch.nn.functional.embedding(places, weight, sparse=True)


@on_workers("main", "b", faults=IN_ORDER)
def test_the_sparse_gradient_of_an_embedding_elsewhere_comes_as_it_is(simulation):
    with Pretended(simulation, "main", "b"):
        places = torch.tensor([1, 3, 1])
        with autograd.context() as context_id:
            rows = rpc.rpc_sync("b", looked_up, (places,))
            autograd.backward(context_id, [(rows * rows).sum()])
            found = rpc.rpc_sync("b", gradient_of_table, (context_id,))
        weight = torch.arange(12.0).reshape(4, 3).requires_grad_()
        rows = torch.nn.functional.embedding(places, weight, sparse=True)
        (rows * rows).sum().backward()
        assert found.is_sparse
        assert torch.equal(found.to_dense(), weight.grad.to_dense())


@pytest.mark.parametrize("create_graph", [False, True])
def test_sparse_gradients_go_as_indices_and_values(create_graph):
    @on_workers("main", "b", faults=IN_ORDER)
    def program(simulation):
        with Pretended(simulation, "main", "b") as device:
            weight = torch.ones(1 << 18, 4, requires_grad=True)
            places = torch.tensor([1, 3, 1])
            with autograd.context() as context_id:
                rows = rpc.rpc_sync("b", looked_up_in, (weight, places))
                loss = (rows * rows).sum()
                found = autograd.grad(context_id, [loss], [weight], create_graph=create_graph)
            expected = torch.zeros(1 << 18, 4)
            expected[1], expected[3] = 4, 2
            assert torch.equal(found[0], expected)
            if not create_graph:
                # The weights went, 4 MB; their gradient took no such segment.
                assert device.channels["b"].held() == 2 << 20

    program()


@on_workers("main", "b", faults=IN_ORDER)
def test_gradients_of_a_sparse_tensor_have_its_layout(simulation):
    with Pretended(simulation, "main", "b"):
        one = sparse(requires_grad=True)
        by = torch.arange(4.0).reshape(2, 2)
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", torch.sparse.mm, (one, by))
            autograd.backward(context_id, [(y * y).sum()])
            found = autograd.get_gradients(context_id)[one]
        other = sparse(requires_grad=True)
        y = torch.sparse.mm(other, by)
        (y * y).sum().backward()
        assert found.is_sparse
        assert torch.equal(found.to_dense(), other.grad.to_dense())


@on_workers("main", "b", faults=IN_ORDER)
def test_a_step_asks_the_device_for_no_more_than_each_message_needs(simulation):
    with Pretended(simulation, "main", "b") as device:
        one, other = leaf(*X), leaf(*X)
        logs = [each.cuda.log for each in device.channels.values()]
        for _ in range(3):
            for log in logs:
                log.clear()
            with autograd.context() as context_id:
                y = rpc.rpc_sync("b", torch.add, (one, other))
                autograd.backward(context_id, [y.sum()])
                found = autograd.get_gradients(context_id)
            assert [found[each].tolist() for each in (one, other)] == [[1, 1]] * 2
        # Two messages out and two in: for each a wait, a copy of each tensor, and a record. The
        # gradient of both leaves is one tensor, sent once. Nobody waits on the host.
        message = ["wait", "copy", "record"]
        both = ["wait", "copy", "copy", "record"]
        assert logs == [[*both, *message * 2, *both], [*both, *message * 3]]


GIVEN = (1.0, 10.0)


@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_that_a_pass_is_given_stay_on_the_device(create_graph):
    @on_workers("main", "b", faults=IN_ORDER)
    def program(simulation):
        with Pretended(simulation, "main", "b"):
            one, given = leaf(*X), torch.tensor(GIVEN, dtype=torch.float64)
            with autograd.context() as context_id:
                roots = [rpc.rpc_sync("b", cube, (one,)), rpc.rpc_sync("b", cube, (one,)) * 2]
                weights = [given, given.flip(0)]
                options = {"create_graph": create_graph, "retain_graph": True}
                (first,) = autograd.grad(context_id, roots, [one], weights, **options)
                # 3 x² (g + 2 g'), for g and g' its numbers in reverse.
                assert first.tolist() == [75 * 21, 147 * 12]
                autograd.backward(context_id, roots, grad_tensors=weights, **options)
                assert autograd.get_gradients(context_id)[one].tolist() == first.tolist()
                autograd.backward(context_id, roots[0], grad_tensors=given, inputs=[one])
                assert autograd.get_gradients(context_id)[one].tolist() == [75 * 22, 147 * 22]

    program()


@on_workers("main", "b", faults=IN_ORDER)
def test_what_a_pass_is_given_may_be_differentiated_and_changed(simulation):
    with Pretended(simulation, "main", "b"):
        one, given = leaf(*X), leaf(*GIVEN)
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", cube, (one,))
            (first,) = autograd.grad(context_id, y, one, given, create_graph=True)
            found = autograd.grad(context_id, first.sum(), [given, one])
            assert [each.tolist() for each in found] == [[75, 147], [30, 420]]
            # At the roots themselves, a leaf and a value that came, what is found is another one.
            y = rpc.rpc_sync("b", same, (one * 1,))
            plain = given.detach()
            for root in (one, y):
                (found,) = autograd.grad(context_id, root, root, plain, retain_graph=True)
                assert found.tolist() == list(GIVEN)
                plain.mul_(2)
                assert found.tolist() == list(GIVEN)
                plain.div_(2)


@on_workers("main", "b", faults=IN_ORDER)
def test_what_a_pass_is_given_is_checked_on_a_device_as_elsewhere(simulation):
    with Pretended(simulation, "main", "b"):
        one = leaf(*X)
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", cube, (one,))
            for given, expected, said in (
                (torch.ones(3, dtype=torch.float64), ShapeError, r"shape \(2,\), .* got \(3,\)"),
                (torch.ones(2), DTypeError, "dtype float64, .* got float32"),
                ([], GradientError, "for each of the 1 tensors .* got 0"),
            ):
                with pytest.raises(expected, match=said):
                    autograd.backward(context_id, [y], grad_tensors=given)
            sparse_one = torch.tensor([0.0, 10.0], dtype=torch.float64).to_sparse()
            (found,) = autograd.grad(context_id, [y], [one], [sparse_one], retain_graph=True)
            assert found.tolist() == [0, 1470]
            half = rpc.rpc_sync("b", same, (one.bfloat16(),))
            given = torch.tensor(GIVEN, dtype=torch.bfloat16)
            assert autograd.grad(context_id, half, one, given)[0].tolist() == list(GIVEN)


def root(value):
    return value.sqrt()


@on_workers("main", "b", faults=IN_ORDER)
def test_nan_is_found_in_a_gradient_with_a_history(simulation):
    with Pretended(simulation, "main", "b"), set_detect_anomaly(True):
        for numbers, is_fine in ((X, True), ((-1.0, 4.0), False)):
            one = leaf(*numbers)
            with autograd.context() as context_id:
                y = rpc.rpc_sync("b", root, (one,))
                expected = nullcontext() if is_fine else pytest.raises(AnomalyError, match="NaN")
                with expected:
                    autograd.grad(context_id, [y.sum()], [one], create_graph=True)
