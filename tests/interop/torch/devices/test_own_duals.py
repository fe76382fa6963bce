"""Tangents of telegrad's own tensors on a device: where they go in calls and results.

The device is the host's memory, see ``pretended.py``; the arrays are NumPy's.
"""

import msgspec
import pytest
from tests.distributed.simulated import IN_ORDER, on_workers
from tests.interop.torch.devices.pretended import Pretended
from tests.interop.torch.devices.pretended_cupy import Array, pretend_cupy

import telegrad as tg
from telegrad.autograd import forward_ad
from telegrad.distributed import autograd, rpc
from telegrad.distributed.contexts import tensor_kind
from telegrad.distributed.contexts.tensor_kind import CarriedDual
from telegrad.distributed.current import autograd_of
from telegrad.errors import DeviceError, ProtocolViolation
from telegrad.interop.torch.devices import peers
from telegrad.interop.torch.devices.placement import Placed
from telegrad.rpc.options import Options
from telegrad.rpc.wire import kinds
from telegrad.tensors import wrap


@pytest.fixture(autouse=True)
def _cupy(monkeypatch):
    pretend_cupy(monkeypatch)
    monkeypatch.setattr(tensor_kind, "staged", _refuse)


def _refuse(array):
    raise AssertionError("an array of the device went through the host's memory")


def dual(*numbers, requires_grad=False):
    primal = wrap(Array.of(*numbers))
    if requires_grad:
        primal.requires_grad_()
    return forward_ad.make_dual(primal, wrap(Array.of(1.0, 10.0)))


def same(value):
    parts_of(value)
    return value


def same_elsewhere(value):
    return rpc.rpc_sync("c", same, (value,))


def parts_of(value):
    primal, tangent = forward_ad.unpack_dual(value)
    assert type(primal.array) is type(tangent.array) is Array
    return primal.detach().tolist(), tangent.detach().tolist()


@pytest.mark.parametrize("in_context", [False, True])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_tangents_stay_on_the_device(in_context, requires_grad):
    @on_workers("main", "b", "c", faults=IN_ORDER)
    def program(simulation):
        with Pretended(simulation, "main", "b", "c") as device, forward_ad.dual_level():
            x = dual(5.0, 7.0, requires_grad=requires_grad and in_context)
            if in_context:
                with autograd.context():
                    found = rpc.rpc_sync("b", same_elsewhere, (x,))
                    assert found.requires_grad == requires_grad
            else:
                found = rpc.rpc_sync("b", same_elsewhere, (x,))
            assert parts_of(found) == ([5, 7], [1, 10])
            # Primal and tangent of each message in one segment.
            assert device.sent() == 4

    program()


@on_workers("main", "b", faults=IN_ORDER)
def test_tangents_of_tangents_go_with_them_and_beside_what_is_on_the_host(simulation):
    with Pretended(simulation, "main", "b"), forward_ad.dual_level():
        outer = dual(5.0, 7.0)
        here = forward_ad.make_dual(tg.tensor([1.0]), tg.tensor([4.0]))
        along = forward_ad.make_dual(wrap(Array.of(2.0, 3.0)), wrap(Array.of(0.5, 0.25)))
        with forward_ad.dual_level():
            inner = forward_ad.make_dual(outer, along)
            plain = wrap(Array.of(9.0))
            found = rpc.rpc_sync("b", lambda *all: all, (inner, plain, here))
            assert type(found[1].array) is Array
            assert found[1].tolist() == [9]
            primal, tangent = forward_ad.unpack_dual(found[0])
        assert parts_of(tangent) == ([2, 3], [0.5, 0.25])
        assert parts_of(primal) == ([5, 7], [1, 10])
        primal, tangent = forward_ad.unpack_dual(found[2])
        assert (primal.tolist(), tangent.tolist()) == ([1], [4])


class Elsewhere:
    """What a worker knows of one that has no such device."""

    def way(self, tensor):
        raise DeviceError("expected a device that worker 'b' has (cpu), got 'cuda:0'")


@on_workers("main", "b", faults=IN_ORDER)
def test_where_the_device_is_not_there_nothing_is_recorded(simulation):
    with Pretended(simulation, "main", "b"), forward_ad.dual_level():
        worker = simulation.worker("main")
        peers._known_peers[worker] = dict.fromkeys(peers._known_peers[worker], Elsewhere())
        with autograd.context() as context_id:
            with pytest.raises(DeviceError, match="worker 'b' has"):
                rpc.rpc_sync("b", same, (dual(5.0, 7.0, requires_grad=True),))
            assert not autograd_of(worker).contexts.get(context_id).sends


@on_workers("main", "b", options=Options(device_maps={"b": {"cuda:0": "cpu"}}), faults=IN_ORDER)
def test_a_device_map_without_pytorch_is_refused_for_tangents_too(monkeypatch):
    monkeypatch.setattr("telegrad.distributed.frameworks.known", [])
    with (
        forward_ad.dual_level(),
        pytest.raises(DeviceError, match=r"device_maps\['b'\] for .* \(2,\) on cuda:0, got one"),
    ):
        rpc.rpc_sync("b", same, (dual(5.0, 7.0),))


@on_workers("main", "b", faults=IN_ORDER)
def test_what_no_worker_sends_in_a_dual_is_refused(simulation):
    kind = kinds.find(CarriedDual)
    with Pretended(simulation, "main", "b"), forward_ad.dual_level():
        levels = autograd_of(simulation.worker("main")).levels
        carried = CarriedDual.of(dual(5.0, 7.0), levels, "b")
        carried.parts = [Placed(part.array, "cpu:0") for part in carried.parts]
    forged = [carried.facts, 0, [["nothing.known", 0, None]]]
    with pytest.raises(ProtocolViolation, match=r"of tensor in a dual one, got 'nothing\.known"):
        kind.from_parts([], forged)
    with pytest.raises(ProtocolViolation, match="expected the parts of a dual tensor, got other"):
        carried.arrive(levels)
    told = msgspec.to_builtins(kind.to_parts(CarriedDual([tg.tensor([1.0])], []))[1])
    assert kind.from_parts([tg.tensor([1.0]).array], told).parts[0].tolist() == [1]
