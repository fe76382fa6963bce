"""PyTorch's modes around calls: what is recorded under them, and where they end."""

import subprocess
import sys
from contextlib import nullcontext

import msgspec
import numpy as np
import pytest
import torch
from tests.distributed.handlers import has_context
from tests.distributed.simulated import on_workers
from tests.interop.torch import handlers as handlers
from tests.rpc.neighbours import neighbours
from torch._functorch.eager_transforms import grad_increment_nesting
from torch.utils._python_dispatch import TorchDispatchMode

import telegrad as tg
from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.interop.torch import framework
from telegrad.interop.torch.modes import default_modes, run_ordinarily
from telegrad.interop.torch.values import tensors
from telegrad.rpc.current import set_default_worker
from telegrad.tensors.recording.modes import MODE

MODES = [torch.no_grad, torch.inference_mode]


def x():
    return torch.tensor([5.0, 7.0], dtype=torch.float64, requires_grad=True)


def sends(context_id):
    return autograd._retrieve_context(context_id)._send_functions()


@pytest.mark.parametrize("mode", MODES)
def test_a_call_without_recording_leaves_nothing_on_either_side(mode):
    @on_workers("main", "b")
    def program():
        one = x()
        with autograd.context() as context_id:
            with mode():
                y = rpc.rpc_sync("b", handlers.scale, (one,))
            assert not y.requires_grad
            assert y.tolist() == [10, 21]
            assert sends(context_id) == {}
            with mode():
                assert not rpc.rpc_sync("b", has_context, (context_id,))

    program()


@pytest.mark.parametrize("mode", MODES)
def test_outside_of_a_context_the_results_are_constants_too(mode):
    @on_workers("main", "b")
    def program():
        with mode():
            assert not rpc.rpc_sync("b", handlers.scale, (x(),)).requires_grad
        assert rpc.rpc_sync("b", handlers.scale, (x(),)).requires_grad

    program()


@on_workers("main", "b")
def test_a_recorded_tensor_of_telegrad_in_the_same_call_is_still_recorded():
    own = tg.tensor([1.0, 2.0], dtype=tg.float64, requires_grad=True)
    with autograd.context() as context_id:
        with torch.no_grad():
            y, z = rpc.rpc_sync("b", handlers.scale_both, (x(), own))
        autograd.backward(context_id, [z.sum()])
        found = autograd.get_gradients(context_id)
        assert [leaf is own for leaf in found] == [True]
        assert found[own].tolist() == [5, 7]
        assert y.tolist() == [10, 21]


@pytest.mark.parametrize(
    "mode", [nullcontext, tg.no_grad, tg.inference_mode, tg.autograd.detect_anomaly]
)
def test_what_torch_runs_in_a_pass_is_recorded_by_telegrad_whatever_mode_the_pass_began_in(mode):
    @on_workers("main", "b")
    def program():
        seen = []
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", handlers.scale, (x(),))
            y.register_hook(lambda _: seen.append(MODE.get()))
            loss = y.sum()
            with mode():
                before = MODE.get()
                autograd.backward(context_id, [loss])
                assert MODE.get() is before
        assert seen == [msgspec.structs.replace(before, recording=True, inference=False)]

    program()


@on_workers("main", "b")
def test_what_arrives_under_inference_mode_can_be_differentiated_later():
    with torch.inference_mode():
        one = rpc.rpc_sync("b", handlers.same, (torch.ones(2),))
    assert not one.is_inference()
    one.requires_grad_()
    (one * one).sum().backward()
    assert one.grad.tolist() == [2, 2]


@on_workers("main", "b")
def test_inference_tensors_travel_as_constants():
    with torch.inference_mode():
        value = torch.arange(2.0)
    assert value.is_inference()
    with autograd.context() as context_id:
        found = rpc.rpc_sync("b", handlers.same, (value,))
        assert not found.is_inference()
        assert found.tolist() == [0, 1]
        one = torch.ones(2, requires_grad=True)
        y = rpc.rpc_sync("b", torch.mul, (one, value))
        autograd.backward(context_id, [y.sum()])
        assert autograd.get_gradients(context_id)[one].tolist() == [0, 1]


@on_workers("main", "b")
def test_a_module_that_comes_without_recording_keeps_its_parameters_as_they_are():
    for mode in (torch.no_grad, tg.no_grad):
        with mode():
            model = rpc.rpc_sync("b", handlers.Model)
        assert len(list(model.parameters())) == 4
        assert all(parameter.requires_grad for parameter in model.parameters())


@on_workers("main", "b")
def test_parameters_of_a_module_that_is_an_argument_are_recorded_where_it_is_one():
    model = handlers.Model()
    data = torch.ones(1, 3, dtype=torch.float64)
    with autograd.context() as context_id:
        with torch.no_grad():
            assert not rpc.rpc_sync("b", run_module, (model, data)).requires_grad
        assert sends(context_id) == {}
        autograd.backward(context_id, [rpc.rpc_sync("b", run_module, (model, data)).sum()])
        found = autograd.get_gradients(context_id)
        assert all(parameter in found for parameter in model.parameters())


def run_module(module, data):
    return module(data)


SAVED = []
"""What the hooks for saved tensors of this process have seen."""


def saving():
    return torch.autograd.graph.saved_tensors_hooks(lambda x: SAVED.append(x) or x, lambda x: x)


class Widening(TorchDispatchMode):
    """Makes every number a double."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {})).double()


def test_what_dtype_cotangents_have_is_not_left_to_the_mode_of_who_asks_first():
    framework._dtype_of_cotangents.cache_clear()
    with Widening():
        assert torch.zeros(()).dtype is torch.float64
        assert framework._dtype_of_cotangents(torch.float32) == np.float32
    assert framework._dtype_of_cotangents(torch.bfloat16) == np.float32


class Scaling(TorchDispatchMode):
    """Makes everything twice as large."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        return made.mul_(2) if func is torch.ops.aten.ones.default else made


THREADS_OWN = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "a default device": lambda: torch.device("meta"),
    "hooks for saved tensors": saving,
    "a mode for operators": Scaling,
    "a function transform": grad_increment_nesting,
}


def modes_here():
    before = len(SAVED)
    made = torch.ones(2, 2)
    is_transforming = torch._C._are_functorch_transforms_active()
    if not is_transforming:
        made.requires_grad_()
    product = made @ made
    total = None if made.is_meta else product.sum().item()
    facts = torch.is_inference_mode_enabled(), str(made.device), str(product.dtype), total
    return product.requires_grad, *facts, len(SAVED) - before, is_transforming


ORDINARY = True, False, "cpu", "torch.float32", 8, 0, False


@pytest.mark.parametrize("name", THREADS_OWN)
def test_what_is_run_ordinarily_is_in_no_mode_of_the_thread_and_the_thread_is_again(name):
    with THREADS_OWN[name]():
        within = modes_here()
        with default_modes(nullcontext("entered"), False) as entered:
            assert entered == "entered"
            assert modes_here() == ORDINARY
        assert modes_here() == within != ORDINARY
        # Whether it records is a pass's own matter.
        with default_modes(nullcontext("entered"), True) as entered:
            assert entered == "entered"
            assert modes_here()[1:] == ORDINARY[1:]
        assert run_ordinarily(modes_here)[1:] == ORDINARY[1:]
        assert modes_here() == within
    assert modes_here() == ORDINARY


def test_a_pass_records_or_not_as_its_thread_does_and_a_handler_always():
    with torch.no_grad(), torch.autocast("cpu"):
        with default_modes(nullcontext(), True):
            assert modes_here() == (False, *ORDINARY[1:])
        with default_modes(nullcontext(), False):
            assert modes_here() == ORDINARY


def test_modes_within_modes_are_all_left_and_come_back_in_their_order():
    with saving(), torch.device("meta"), torch.autocast("cpu"), saving(), torch.device("cpu"):
        within = modes_here()
        assert run_ordinarily(modes_here) == ORDINARY
        assert modes_here() == within
        assert torch.empty(1).device.type == "cpu"
    assert modes_here() == ORDINARY


def cast_to():
    """The dtype that autocast computes in, unless told another."""
    with torch.autocast("cpu"):
        return (torch.ones(1, 1) @ torch.ones(1, 1)).dtype


@pytest.mark.parametrize("is_enabled", [True, False])
def test_autocast_of_what_is_run_ordinarily_sees_no_casts_of_the_thread(is_enabled):
    weight = torch.nn.Parameter(torch.ones(1, 1))

    def compute():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.nn.functional.linear(torch.ones(1, 1), weight).item()

    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert compute() == 1
        with torch.autocast("cpu", enabled=is_enabled):
            for value in (2, 3):
                with torch.no_grad():
                    weight.fill_(value)
                assert run_ordinarily(compute) == value
                assert torch.is_autocast_enabled("cpu") == is_enabled
    assert compute() == 3


def test_autocast_of_what_is_run_ordinarily_has_no_dtype_of_the_thread():
    with torch.autocast("cpu", dtype=torch.float16):
        assert run_ordinarily(cast_to) is torch.bfloat16
        assert cast_to() is torch.float16
    assert cast_to() is torch.bfloat16


def test_what_arrives_is_on_its_own_device_whatever_the_default_is():
    for value in (torch.ones(0, dtype=torch.bfloat16), torch.ones(2, 2).to_sparse()):
        with torch.device("meta"):
            assert tensors.from_parts(*tensors.to_parts(value)).device.type == "cpu"
    with torch.device("meta"):
        assert framework._dtype_of_cotangents.__wrapped__(torch.bfloat16) == np.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@on_workers("main", "b")
def test_what_is_no_part_of_a_function_transform_travels_inside_of_it(dtype):
    factor = torch.tensor([2.0, 3.0], dtype=dtype)
    leaf = factor.clone().requires_grad_()

    def multiplied(one):
        came = rpc.rpc_sync("b", handlers.same, ([factor, leaf],))
        assert [value.requires_grad for value in came] == [False, True]
        return (one * came[0] * came[1].detach()).sum()

    assert torch.func.grad(multiplied)(torch.ones(2)).tolist() == [4, 9]
    assert torch.func.vmap(multiplied)(torch.ones(3, 2)).tolist() == [13, 13, 13]


@pytest.fixture
def calling():
    """Two workers over sockets, the first of them current: who waits for an answer reads it."""
    with neighbours("a", "b") as (a, b):
        attach_autograd(a)
        attach_autograd(b)
        set_default_worker(a)
        yield
        set_default_worker(None)


@pytest.mark.usefixtures("calling")
@pytest.mark.parametrize("transform", ["vmap", "functionalize", "grad"])
def test_a_result_with_a_history_is_a_constant_to_a_function_transform_and_has_its_gradient(
    transform,
):
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    transformed = getattr(torch.func, transform)
    here = torch.tensor([2.0, 3.0], requires_grad=True)
    (expected,) = torch.autograd.grad(
        transformed(lambda one: (one * one * here).sum())(x).sum(), here
    )

    def function(one):
        return (one * one * rpc.rpc_sync("b", handlers.parameter)).sum()

    with autograd.context() as context_id:
        autograd.backward(context_id, [transformed(function)(x).sum()])
        (found,) = rpc.rpc_sync("b", handlers.gradients, (context_id,)).values()
        assert found == expected.tolist()


NOT_MET_YET = """
import torch
from telegrad.distributed import LocalCluster, autograd, rpc

def double():
    return torch.ones(2, requires_grad=True) * 2

def is_recording():
    return torch.is_grad_enabled()

def call_back(name):
    return rpc.rpc_sync(name, is_recording)

with LocalCluster(["b"]), autograd.context(), torch.no_grad():
    assert rpc.rpc_sync("b", call_back, (rpc.current_worker().name,))
    assert not rpc.rpc_sync("b", double).requires_grad
"""


@pytest.mark.processes
def test_the_modes_of_torch_hold_for_calls_though_no_tensor_was_met_yet():
    command = [sys.executable, "-c", NOT_MET_YET]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


FIRST_MET_IN_INFERENCE_MODE = """
import torch
import telegrad as tg
from telegrad.torch import from_torch, to_torch

with torch.inference_mode():
    assert from_torch(torch.ones(2)).tolist() == [1, 1]
w, a = tg.tensor([1.0, 2.0], requires_grad=True), torch.ones(2, requires_grad=True)
(to_torch(w * w) * a).sum().backward()
(from_torch(a.exp()) * w).sum().backward()
assert w.grad.tolist()[0] > 4, w.grad
"""


@pytest.mark.processes
def test_a_torch_tensor_may_be_met_first_in_inference_mode():
    command = [sys.executable, "-c", FIRST_MET_IN_INFERENCE_MODE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def call_back(name, value):
    return rpc.rpc_sync(name, modes_here), rpc.rpc_sync(name, handlers.scale, (value,))


@pytest.mark.processes
def test_a_handler_on_the_thread_that_waits_does_not_run_in_its_modes():
    with LocalCluster(["b"]):
        me = rpc.current_worker().name
        value = torch.ones(2)
        for mode in THREADS_OWN.values():
            with mode():
                modes, _ = rpc.rpc_sync("b", call_back, (me, value))
                assert tuple(modes) == ORDINARY
        own = tg.tensor([1.0], requires_grad=True)
        one = x()
        with autograd.context() as context_id:
            with torch.inference_mode():
                # Recorded for the Tensor's sake; the call back is served in this thread.
                y = rpc.rpc_sync("b", scale_back, (me, one.tolist(), own))
            autograd.backward(context_id, [y.sum()])
            found = autograd.get_gradients(context_id)
            assert found[handlers.parameter()].tolist() == [5, 7]


@pytest.mark.parametrize("mode", MODES)
def test_a_view_made_without_recording_is_a_constant_in_a_pass(mode):
    @on_workers("main", "b")
    def program():
        one = x()
        with mode():
            view = one[:1]
        # PyTorch says so, and gives no gradient.
        assert view.requires_grad
        assert view.is_leaf
        with autograd.context() as context_id:
            double, seen = view * 2, []
            double.register_hook(lambda gradient: seen.append(gradient.tolist()))
            sent = sum(rpc.rpc_sync("b", handlers.same, ([view, double],)))
            kept, scaled = rpc.rpc_sync("b", view_and_scale, (mode, one))
            autograd.backward(context_id, [(sent + view).sum() + (kept * scaled).sum()])
            found = autograd.get_gradients(context_id)
            assert found[one].tolist() == [10, 21]
            assert list(found) == [one]
            assert seen == [[1]]
            assert rpc.rpc_sync("b", handlers.gradients, (context_id,)) == {"w": [25, 49]}

    program()


def view_and_scale(mode, value):
    with mode():
        view = value.view(2)
    return view, value * handlers.parameter()


def scale_back(name, numbers, own):
    value = torch.tensor(numbers, dtype=torch.float64, requires_grad=True)
    return rpc.rpc_sync(name, handlers.scale, (value,))
