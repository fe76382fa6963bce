"""Torch tensors as arguments and results: what arrives is what left."""

import threading

import numpy as np
import pytest
import torch
from tests.distributed.simulated import on_workers
from tests.interop.torch import handlers as handlers

from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.errors import ProtocolViolation, SavedValueChanged, Unserializable, UsageError
from telegrad.interop.torch import version
from telegrad.interop.torch.values import tensors, views
from telegrad.rpc.wire import kinds

DTYPES = sorted({each for each in vars(torch).values() if isinstance(each, torch.dtype)}, key=str)
# Quantized tensors can't be sent.
DTYPES = [each for each in DTYPES if not str(each).startswith("torch.q")]


def there_and_back(value):
    return rpc.rpc_sync("b", handlers.same, (value,))


def assert_equal(found, expected):
    assert type(found) is type(expected)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.requires_grad == expected.requires_grad
    assert bits_of(found) == bits_of(expected)


def bits_of(value):
    plain = value.detach()
    # PyTorch can't copy all dtypes of one byte.
    plain = plain.view(torch.uint8) if plain.dtype.itemsize == 1 else plain
    return plain.contiguous().reshape(-1).view(torch.uint8).tolist()


@on_workers("main", "b")
def test_one_tensor_twice_stays_one_and_views_of_one_memory_stay_so():
    whole = torch.zeros(4)
    one, part, turned, again = there_and_back([whole, whole[:2], whole.reshape(2, 2).T, whole])
    assert one is again
    one[1] = 5.0
    assert part.tolist() == [0.0, 5.0]
    assert turned.tolist() == [[0.0, 0.0], [5.0, 0.0]]
    assert turned.stride() == (1, 2)


@on_workers("main", "b")
def test_what_lies_between_two_views_is_not_sent():
    table = torch.zeros(3, 2)
    for given in ((table[0], table[2]), (table[:, 0], table[0]), (table[:, 0], table[1:, 0])):
        found = there_and_back(given)
        for came, left in zip(found, given):
            assert torch.equal(came, left)
            assert came.untyped_storage().nbytes() == left.numel() * 4


@on_workers("main", "b")
def test_parameters_and_leaves_of_one_memory_keep_their_types():
    parameter = torch.nn.Parameter(torch.zeros(2))
    leaf = parameter.detach()[:1].requires_grad_()
    there, view, plain = there_and_back((parameter, leaf, parameter.detach()))
    assert type(there) is torch.nn.Parameter
    assert (there.requires_grad, view.requires_grad, plain.requires_grad) == (True, True, False)
    plain[0] = 7.0
    assert there[0] == view[0] == 7.0


def change_one_of_two(first, second):
    product = first * first
    second.add_(1)
    return product


@on_workers("main", "b")
def test_a_change_of_one_view_does_not_go_unseen_in_a_pass_that_saved_the_other():
    x = torch.ones(4, dtype=torch.float64, requires_grad=True)
    whole = x * 2
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", change_one_of_two, (whole, whole.detach()[1:]))
        with pytest.raises(SavedValueChanged):
            autograd.backward(context_id, [y.sum()])


@on_workers("main", "b")
def test_views_of_one_memory_each_get_their_gradient():
    x = torch.arange(4.0, dtype=torch.float64, requires_grad=True)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", torch.dot, (x[:3], x[1:]))
        autograd.backward(context_id, [y])
        assert autograd.get_gradients(context_id)[x].tolist() == [1, 2, 4, 2]


@pytest.mark.parametrize("order", [[0, 0], [1], [0, 2], [0, 1, 2]])
def test_an_order_of_axes_that_is_none_is_refused(order):
    facts = [tensors._DENSE, False, None, None, [2, 2], order]
    with pytest.raises(ProtocolViolation, match="the axes of a torch tensor of 2"):
        tensors.from_parts([np.zeros((2, 2))], facts)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ([3, False, False, [2], [1], 0], "slot 3 of its message"),
        ([0, False, False, [9], [1], 0], "inside of the memory"),
        ([0, False, False, [2], [1], -1], "inside of the memory"),
    ],
)
def test_a_view_that_lies_outside_of_its_memory_is_refused(facts, said):
    values = [kinds.find(views.CarriedView).from_parts([np.zeros(2)], [*facts, False])]
    with pytest.raises(ProtocolViolation, match=said):
        views.land(values)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@on_workers("main", "b")
def test_dense_tensors_of_every_dtype_arrive_as_they_are(dtype):
    # Zeros and ones: a bool has no other bytes.
    whole = (torch.arange(6 * dtype.itemsize, dtype=torch.uint8) % 7 % 2).view(dtype).reshape(2, 3)
    for value in (whole, whole[0, 1], whole[:0], whole.T, whole[:, ::2]):
        assert_equal(there_and_back(value), value)
        constant = torch.nn.Parameter(value, requires_grad=False)
        assert_equal(there_and_back(constant), constant)


@on_workers("main", "b")
def test_views_arrive_with_their_values():
    value = torch.arange(12.0).reshape(3, 4)
    for view in (value.T, value[:, ::2], value[1], value.expand(2, 3, 4)):
        assert torch.equal(there_and_back(view), view)
    turned = torch.tensor([1 + 2j, 3 - 1j]).conj()
    assert torch.equal(there_and_back(turned), turned)


def strides_of(value):
    return value.stride()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@on_workers("main", "b")
def test_a_tensor_without_gaps_keeps_the_order_of_its_axes_in_memory(dtype):
    value = torch.arange(24.0).to(dtype).reshape(2, 3, 4, 1)
    images = torch.ones(2, 3, 4, 5, dtype=dtype).to(memory_format=torch.channels_last)
    for laid in (value[0, :, :, 0].T, value.permute(2, 0, 3, 1), images, value.transpose(0, 1)):
        assert rpc.rpc_sync("b", strides_of, (laid,)) == laid.stride()
        found = there_and_back(laid)
        assert torch.equal(found, laid)
        assert found.stride() == laid.stride()
    # One with gaps, or with elements that are one in memory, arrives contiguous.
    for other in (value[:, ::2], value[0, 0, 0].expand(3, 1)):
        assert there_and_back(other).is_contiguous()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@on_workers("main", "b")
def test_a_transposed_tensor_is_recorded_and_changed_in_place_as_any_other(dtype):
    x = torch.arange(6.0, dtype=dtype).reshape(2, 3).requires_grad_()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.same, (x.T,))
        assert y.stride() == (1, 3)
        changed = y.mul_(2)
        autograd.backward(context_id, [(changed * changed).sum()])
        assert torch.equal(autograd.get_gradients(context_id)[x], 8 * x.detach())


@on_workers("main", "b")
def test_sparse_tensors_arrive_sparse():
    value = torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse()
    found = there_and_back(value)
    assert found.layout is torch.sparse_coo
    assert found.is_coalesced()
    assert torch.equal(found.to_dense(), value.to_dense())
    twice = torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (3,), check_invariants=True)
    assert not there_and_back(twice).is_coalesced()
    assert there_and_back(twice).to_dense().tolist() == [3.0, 0.0, 0.0]


@on_workers("main", "b")
def test_outside_of_a_context_a_tensor_arrives_as_a_leaf():
    leaf = torch.tensor([1.0], requires_grad=True)
    for value in (leaf, leaf * 2):
        found = there_and_back(value)
        assert found.is_leaf
        assert found.requires_grad


@on_workers("main", "b")
def test_a_parameter_stays_one():
    for requires_grad in (True, False):
        value = torch.nn.Parameter(torch.ones(2), requires_grad=requires_grad)
        assert_equal(there_and_back(value), value)


@on_workers("main", "b")
def test_modules_optimisers_and_state_dicts_travel_whole():
    model = handlers.Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.ones(1, 3, dtype=torch.float64)).sum().backward()
    optimizer.step()
    there, stepped = there_and_back((model, optimizer))
    x = torch.ones(2, 3, dtype=torch.float64)
    assert torch.equal(there(x), model(x))
    # One object stays one object: the optimiser that arrived steps the model that arrived.
    assert stepped.param_groups[0]["params"][0] is there.first.weight
    state = there_and_back(optimizer.state_dict())
    assert torch.equal(state["state"][0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])
    assert list(there_and_back(model.state_dict())) == list(model.state_dict())


@on_workers("main", "b")
def test_a_module_can_be_the_value_of_a_reference():
    model = rpc.remote("b", handlers.Model)
    x = torch.ones(2, 3, dtype=torch.float64)
    assert torch.equal(model.rpc_sync().forward(x), handlers.Model()(x))


class Marked(torch.Tensor):
    pass


UNABLE = {
    "subclass": (lambda: torch.ones(2).as_subclass(Marked), "Marked"),
    "layout": (lambda: torch.eye(2).to_sparse_csr(), "torch.sparse_csr"),
    "device": (lambda: torch.ones(2, device="meta"), "on meta"),
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        "quantized",
    ),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", UNABLE)
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "inside"])
def test_what_cannot_travel_is_refused_by_name(name, inside):
    make, words = UNABLE[name]

    @on_workers("main", "b")
    def program():
        value = {"weights": [make()]} if inside else make()
        with pytest.raises(Unserializable, match=words) as caught:
            there_and_back(value)
        path = r"args[0]['weights'][0]" if inside else "args[0]"
        assert str(caught.value).startswith(f"{path} can't be sent: ")

    program()


@on_workers("main", "b")
def test_a_parameter_that_has_no_memory_yet_is_refused_by_name_among_others():
    said = r"subclass torch\.nn\.parameter\.UninitializedParameter"
    with pytest.raises(Unserializable, match=said):
        there_and_back([torch.ones(2), torch.nn.parameter.UninitializedParameter()])


def test_a_peer_can_name_nothing_but_dtypes():
    parts, facts = tensors.to_parts(torch.ones(2, dtype=torch.bfloat16))
    facts[3] = "load"
    with pytest.raises(ProtocolViolation, match="dtype"):
        tensors.from_parts(parts, facts)


@pytest.mark.parametrize("installed", ["1.13.1", "2.10.0", "unknown"])
def test_a_version_out_of_range_is_refused(installed):
    with pytest.raises(UsageError, match=r"expected PyTorch 2\.11 or newer"):
        version.check(installed)


@pytest.mark.parametrize("installed", ["2.11.0", "2.13.0+cpu", "3.0.0a0"])
def test_newer_versions_are_taken(installed):
    version.check(installed)


def test_a_loader_that_fails_is_tried_again_and_others_wait_for_it():
    # The name of a module that no other test registers.
    alien = type("Alien", (), {"__module__": "alien_framework.values"})
    calls = []
    inside, go_on = threading.Event(), threading.Event()

    def load():
        calls.append(threading.get_ident())
        if len(calls) == 1:
            raise UsageError("not today")
        inside.set()
        assert go_on.wait(30)
        kinds.register(alien, lambda value: ([], None), lambda parts, facts: alien())

    kinds.register_lazily("alien_framework", load)
    with pytest.raises(UsageError, match="not today"):
        kinds.find(alien)
    found = []
    threads = [threading.Thread(target=lambda: found.append(kinds.find(alien))) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert inside.wait(30)
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert len(calls) == 2
    assert all(kind is not None for kind in found)


@pytest.mark.processes
def test_a_large_tensor_goes_to_another_process_and_back():
    value = torch.arange(1 << 20, dtype=torch.float32).reshape(1024, 1024)
    with LocalCluster(["b"]):
        assert torch.equal(there_and_back(value), value)
        assert torch.equal(there_and_back(value.bfloat16()), value.bfloat16())


@pytest.mark.parametrize("shape", [[], [1000], [1 << 40, 1 << 10]])
def test_a_tensor_that_came_without_its_items_is_refused(shape):
    """It was built of memory that the process had used for something else."""
    facts = [0, False, None, "bfloat16", shape]
    with pytest.raises(ProtocolViolation, match="expected the items of a torch tensor"):
        tensors.from_parts([np.zeros(0, np.uint16)], facts)
