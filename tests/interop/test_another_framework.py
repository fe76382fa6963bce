"""Another framework joins by the methods that ``interop/README.md`` lists: here one of a file."""

import re
from pathlib import Path

import pytest
import torch
from tests.distributed.simulated import on_workers
from tests.interop import tape
from tests.interop.tape import Value

import telegrad.interop
from telegrad.distributed import LocalCluster, autograd, frameworks, rpc
from telegrad.errors import GradientError
from telegrad.rpc.wire import kinds

PAGE = (Path(telegrad.interop.__file__).parent / "README.md").read_text()


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """PyTorch, and the tape before it or after it."""
    kinds.find(torch.Tensor)
    (first,) = [each for each in frameworks.known if each.type is torch.Tensor]
    monkeypatch.setattr(frameworks, "known", [first])
    tape.enlist()


def gradients_of(x, y):
    with autograd.context() as context_id:
        z = rpc.rpc_sync("b", tape.times, (x, rpc.rpc_sync("c", tape.times, (x, y))))
        autograd.backward(context_id, [(z + x).sum()])
        found = autograd.get_gradients(context_id)
        assert type(found[x]) is Value
        return found[x].numbers.tolist(), found[y].numbers.tolist()


EXPECTED = [2 * 2 * 5 + 1, 2 * 3 * 7 + 1], [4, 9]
"""The gradients of x * x * y + x."""


@on_workers("a", "b", "c")
def test_its_values_go_over_workers_and_their_gradients_come_back():
    x, y = Value([2.0, 3.0], True), Value([5.0, 7.0], True)
    assert gradients_of(x, y) == EXPECTED
    assert x.grad is None


def test_it_does_over_processes():
    with LocalCluster(["b", "c"]):
        for name in ("b", "c"):
            rpc.rpc_sync(name, tape.enlist)
        assert gradients_of(Value([2.0, 3.0], True), Value([5.0, 7.0], True)) == EXPECTED


@on_workers("a", "b")
def test_gradients_of_chosen_inputs_and_weights_are_its_own():
    x, unused = Value([2.0, 3.0], True), Value([1.0], True)
    with autograd.context() as context_id:
        y = x * x
        z = rpc.rpc_sync("b", tape.times, (y, x))
        found = autograd.grad(
            context_id, z, [x, y, unused], Value([1.0, 10.0]), materialize_grads=True
        )
        with pytest.raises(GradientError, match=r"value with a history as inputs\[0\]"):
            autograd.grad(context_id, z, [Value([1.0])], Value([1.0, 1.0]))
    assert [each.numbers.tolist() for each in found] == [[12.0, 270.0], [2.0, 30.0], [0.0]]


@on_workers("a", "b")
def test_its_modes_hold_for_a_call_and_not_in_its_handler():
    x = Value([2.0], True)
    with tape.off(), autograd.context():
        assert rpc.rpc_sync("b", tape.is_recording)
        assert rpc.rpc_sync("b", tape.times, (x, x)).history is None


@pytest.mark.parametrize("order", [1, -1])
@on_workers("a", "b")
def test_values_of_two_frameworks_are_in_one_message(order):
    frameworks.known.sort(key=lambda each: order * (each.type is Value))
    x, t = Value([2.0, 3.0], True), torch.tensor([5.0, 7.0], requires_grad=True)
    with autograd.context() as context_id:
        value, tensor = rpc.rpc_sync("b", tape.with_both, (x, t))
        autograd.backward(context_id, [value.sum(), tensor.sum()])
        found = autograd.get_gradients(context_id)
        assert found[x].numbers.tolist() == [4.0, 6.0]
        assert found[t].tolist() == [10.0, 14.0]


@pytest.mark.parametrize("protocol", ["Framework", "Devices", "Parameters"])
def test_the_page_has_a_row_for_each_method(protocol):
    seam = vars(getattr(frameworks, protocol))
    methods = {name for name, each in seam.items() if callable(each) and name[0] != "_"}
    _, _, section = PAGE.partition(f"`{protocol}`")
    rows = section.partition("\n\n")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)\(", rows, re.MULTILINE)) == methods
