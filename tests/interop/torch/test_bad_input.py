"""What can go wrong with torch tensors: an error that says what to do, never a wrong number."""

import operator
import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from tests.distributed.simulated import on_workers
from tests.interop.torch import handlers as handlers

import telegrad as tg
from telegrad.distributed import autograd, rpc
from telegrad.distributed.optim import DistributedOptimizer
from telegrad.errors import (
    DeviceError,
    DTypeError,
    GradientError,
    GraphFreedError,
    SavedValueChanged,
    Unserializable,
    UsageError,
)
from telegrad.interop.torch.devices.peers import Devices
from telegrad.interop.torch.values import tensors
from telegrad.torch import from_torch, to_torch


def x():
    return torch.tensor([5.0, 7.0], dtype=torch.float64, requires_grad=True)


def remote(value):
    return rpc.rpc_sync("b", handlers.scale, (value,))


def test_a_version_out_of_range_is_refused_when_pytorch_is_first_needed():
    code = (
        "import torch; torch.__version__ = '2.5.1'\n"
        "from telegrad.torch import from_torch\n"
        "from telegrad.errors import UsageError\n"
        "try:\n    from_torch(torch.ones(2))\n"
        "except UsageError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "expected PyTorch 2.11 or newer (tested with 2.13), got 2.5.1" in done.stdout


class Marked(torch.Tensor):
    pass


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.ones(2).as_subclass(Marked), "Marked"),
        (lambda: torch.eye(2).to_sparse_csr(), "sparse_csr"),
        (lambda: torch.ones(2, device="meta"), "on meta"),
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "a nested one"),
    ],
    ids=["subclass", "layout", "device", "nested"],
)
@pytest.mark.parametrize("in_context", [False, True])
def test_what_cannot_travel_is_named_by_its_path_and_leaves_no_message(make, words, in_context):
    @on_workers("main", "b")
    def program():
        value = {"inputs": [torch.ones(2, requires_grad=True), make()]}
        if not in_context:
            with pytest.raises(Unserializable, match=words) as caught:
                rpc.rpc_sync("b", handlers.same, (value,))
        else:
            with autograd.context() as context_id:
                with pytest.raises(Unserializable, match=words) as caught:
                    rpc.rpc_sync("b", handlers.same, (value,))
                assert autograd._retrieve_context(context_id)._send_functions() == {}
        assert str(caught.value).startswith("args[0]['inputs'][1] can't be sent: ")

    program()


@pytest.mark.parametrize("in_context", [False, True])
@on_workers("main", "b")
def test_an_argument_or_a_result_that_cannot_travel_is_named_by_its_place(in_context):
    nowhere = torch.ones(2, device="meta")
    results = {
        "result": lambda: torch.ones(2, device="meta"),
        r"result\[1\]": lambda: (1, torch.ones(2, device="meta")),
    }
    with autograd.context() if in_context else nullcontext():
        with pytest.raises(Unserializable, match=r"^args\[1\] can't be sent: .*on meta"):
            rpc.rpc_sync("b", torch.mul, (torch.ones(2, requires_grad=True), nowhere))
        for place, function in results.items():
            with pytest.raises(Unserializable, match=rf"^{place} can't be sent: .*on meta"):
                rpc.rpc_sync("b", function)


@on_workers("main", "b")
def test_a_tensor_inside_of_a_function_transform_is_refused():
    def function(value):
        return rpc.rpc_sync("b", handlers.same, (value,)).sum()

    for transform in (torch.func.grad, torch.func.functionalize):
        with pytest.raises(Unserializable, match=r"args\[0\] can't be sent: .*torch\.func"):
            transform(function)(torch.ones(2))


def test_a_device_that_the_receiver_lacks_is_an_error_of_the_sender():
    there = Devices(["cpu", "cuda:0"], {})
    assert there.of("cuda:0", {}, "b", "it") == "cuda:0"
    with pytest.raises(
        DeviceError, match=r"worker 'b' has \(cpu, cuda:0\), got 'cuda:1' for it on"
    ):
        there.of("cuda:1", {}, "b", "it")
    with pytest.raises(DeviceError, match=r"Options.device_maps\['b'\]"):
        there.of("cuda:0", {"cuda:0": "cuda:7"}, "b", "it")


def test_a_device_map_is_followed_there_and_backwards_on_the_way_back():
    there = Devices(["cpu", "cuda:0", "cuda:1"], {"cuda:1": "cuda:0"})
    assert there.of("cuda:0", {}, "b", "it") == "cuda:1"
    assert there.of("cuda:1", {}, "b", "it") == "cuda:1"
    assert there.of("cuda:0", {"cuda:0": "cpu"}, "b", "it") == "cpu"


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a CUDA device")
def test_a_device_that_is_not_there_is_an_error_of_the_receiver_too():
    parts, _ = tensors.to_parts(torch.ones(2))
    with pytest.raises(DeviceError, match=r"got 'cuda:0' for a torch tensor of shape \(2,\)"):
        tensors.from_parts(parts, [0, False, "cuda:0", None, [2]])


@on_workers("main", "b")
def test_a_torch_graph_that_was_freed_on_another_worker_is_named_so():
    one = x()
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale_after_freeing, (one,))
        with pytest.raises(GraphFreedError, match="PyTorch graph that still has its saved values"):
            autograd.backward(context_id, [y.sum()])
        assert dict(autograd.get_gradients(context_id)) == {}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.SGD, {}),
        (torch.optim.Adam, {}),
        (torch.optim.Adam, {"fused": True}),
        (torch.optim.SGD, {"fused": True}),
    ],
    ids=["sgd", "adam", "fused adam", "fused sgd"],
)
def test_a_step_in_place_between_the_forward_and_the_backward_is_an_error(kind, options):
    @on_workers("main", "b")
    def program():
        one = x()
        # What hangs on a parameter would not follow it to another value: it is stepped in place.
        rpc.rpc_sync("b", handlers.hang_on_parameter)
        optimizer = DistributedOptimizer(
            kind, [rpc.remote("b", handlers.parameter)], lr=0.1, **options
        )
        with autograd.context() as context_id:
            autograd.backward(context_id, [remote(one).sum()])
            optimizer.step(context_id)
            late = remote(one)
            optimizer.step(context_id)
            with pytest.raises(SavedValueChanged, match=r"parameter\.clone\(\)"):
                autograd.backward(context_id, [late.sum()])

    program()


@on_workers("main", "b")
def test_a_copy_of_the_parameter_is_not_touched_by_a_step():
    one = x()
    optimizer = DistributedOptimizer(torch.optim.SGD, [rpc.remote("b", handlers.parameter)], lr=0.1)
    with autograd.context() as context_id:
        autograd.backward(context_id, [remote(one).sum()])
        late = rpc.rpc_sync("b", handlers.scale_by_copy, (one,))
        optimizer.step(context_id)
        autograd.backward(context_id, [late.sum()])
        # Twice the value that the parameter had in both forward passes.
        assert autograd.get_gradients(context_id)[one].tolist() == [4, 6]


TAKE_OVER = r"torch\.Tensor.*telegrad\.torch\.from_torch"


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (lambda: tg.sin(x()), TAKE_OVER),
        (lambda: tg.ones(2) * x(), TAKE_OVER),
        (lambda: tg.autograd.grad(x().sum(), x()), TAKE_OVER),
        (lambda: tg.autograd.backward(x().sum()), TAKE_OVER),
        (lambda: tg.autograd.backward([x().sum()]), r"as tensors\[0\], got torch\.Tensor"),
        (lambda: tg.nn.Linear(2, 1)(x()), TAKE_OVER),
        (lambda: tg.nn.MSELoss()(tg.ones(2), x()), TAKE_OVER),
        (lambda: setattr(tg.ones(2).requires_grad_(), "grad", x()), TAKE_OVER),
        (lambda: tg.save({"x": x()}, "unwritten"), r"under 'x', got torch\.Tensor"),
        (
            lambda: tg.optim.SGD(torch.nn.Linear(2, 1).parameters()),
            r"telegrad Tensors as parameters, got torch\.nn\.parameter\.Parameter",
        ),
    ],
)
def test_a_torch_tensor_in_the_place_of_a_telegrad_one_is_named_as_what_it_is(mistake, said):
    with pytest.raises(UsageError, match=said):
        mistake()


@pytest.mark.parametrize("compare", [operator.eq, operator.ne, operator.lt])
def test_a_torch_tensor_is_not_unequal_to_a_telegrad_one_without_a_word(compare):
    ours, theirs = tg.tensor([1.0]), torch.tensor([1.0])
    for left, right in ((ours, theirs), (theirs, ours)):
        with pytest.raises(DTypeError, match=r"telegrad\.torch\.from_torch"):
            compare(left, right)
    assert ours != [1.0]


def test_an_array_in_the_place_of_tensors_is_named_as_a_whole():
    with pytest.raises(DTypeError, match="sequence of Tensors as inputs, got ndarray"):
        tg.autograd.grad(tg.ones(2).requires_grad_().sum(), np.ones(2))


@on_workers("main", "b")
def test_mixtures_that_cannot_be_differentiated_are_refused():
    with pytest.raises(DTypeError, match="NumPy has"):
        from_torch(torch.ones(2, dtype=torch.bfloat16))
    with pytest.raises(DTypeError, match=r"expected a telegrad Tensor, got torch\.Tensor"):
        to_torch(torch.ones(2))
    one, own = x(), tg.tensor([1.0, 2.0], dtype=tg.float64, requires_grad=True)
    with pytest.raises(TypeError):
        one * own
    with autograd.context() as context_id:
        y = remote(one)
        with pytest.raises(GradientError, match="expected a scalar"):
            autograd.backward(context_id, [y, own.sum()])
        with pytest.raises(DTypeError, match="expected tensors as inputs, got list"):
            autograd.backward(context_id, [y.sum()], inputs=[[one]])


@on_workers("main", "b")
def test_a_gradient_whose_dtype_has_no_wire_form_is_refused_before_it_is_sent():
    value = torch.ones(2).to(torch.float8_e4m3fn).requires_grad_()
    with autograd.context() as context_id:
        with pytest.raises(DTypeError, match="float8_e4m3fn"):
            rpc.rpc_sync("b", handlers.same, (value,))
        assert autograd._retrieve_context(context_id)._send_functions() == {}
