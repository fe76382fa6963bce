"""What a member does wrong with a segment, or a device can't take, in calls, results and passes.

The device is the host's memory, see ``pretended.py``. Each is a typed error that names worker and
device where the program made the call or the pass; what comes after it goes through, and nothing is
left.
"""

import time
from contextlib import nullcontext

import msgspec
import pytest
import torch
from tests.distributed.simulated import IN_ORDER, on_workers
from tests.interop.torch.devices.pretended import Pretended
from tests.rpc.neighbours import eventually, neighbours

from telegrad.distributed import autograd, rpc
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.errors import DeviceError, ProtocolViolation
from telegrad.interop.torch.devices import peers, segments
from telegrad.interop.torch.devices.peers import Devices, Peer
from telegrad.interop.torch.devices.segments import Export

HONEST = Export.fill
ALLOCATED = segments.allocated
COPIED = segments.Import._copied


def same(value):
    return value


def cube(value):
    return value * value * value


def forging(who, **change):
    """What fills a segment, and says of it what is not so if `who` does it."""

    def fill(segment, tensors):
        spans = HONEST(segment, tensors)
        if segment.peer == who:
            return spans
        return [msgspec.structs.replace(span, **change) for span in spans]

    return fill


FORGED = {
    "an unknown number": (
        {"segment": 99},
        "names the device segment 99 for a tensor on 'cpu:0', which it",
    ),
    "a use that was before": ({"use": 0}, "after .*, got 0: the message is stale or forged"),
    "a place outside of it": ({"offset": 1 << 40}, "expected a tensor within the 2097152 bytes of"),
    "more than it has": ({"shape": [1 << 20, 9]}, "expected a tensor within the 2097152 bytes of"),
}


def a_call(one):
    return rpc.rpc_sync("b", same, (one.detach(),))


def a_pass(one):
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", cube, (one,))
        ready()
        autograd.backward(context_id, [(y * one).sum()])
        return autograd.get_gradients(context_id)[one]


def ready():
    """From here on it goes wrong, where a test says so."""


STEPS = {
    "a call": (a_call, "main"),
    "a result": (a_call, "b"),
    "gradients for another worker": (a_pass, "main"),
    "gradients from another worker": (a_pass, "b"),
}


def run(step, begin, said, error):
    """Make a step that fails; then one that does not."""

    @on_workers("main", "b", faults=IN_ORDER)
    def program(simulation):
        with Pretended(simulation, "main", "b") as device:
            one = torch.tensor([5.0, 7.0], requires_grad=True)
            expected = step(one).tolist()
            with pytest.MonkeyPatch.context() as patch:
                if step is a_pass:
                    patch.setitem(globals(), "ready", lambda: begin(patch))
                else:
                    begin(patch)
                with pytest.raises(error, match=said):
                    step(one)
            assert step(one).tolist() == expected
            for channels in device.channels.values():
                channels.trim(time.monotonic() + 1000)
            assert device.machine.buffers == {}
            assert device.machine.events == {}
            assert device.machine.opened == []

    program()


@pytest.mark.parametrize("step", [step for step in STEPS if step != "a result"])
@pytest.mark.parametrize("how", FORGED)
def test_a_segment_that_is_named_wrong_is_refused_where_it_is_read(step, how):
    program, who = STEPS[step]
    change, said = FORGED[how]
    fill = forging(who, **change)
    said = f"(?=.*worker '{who}').*{said}"
    run(program, lambda patch: patch.setattr(Export, "fill", fill), said, ProtocolViolation)


class Lacking:
    """What a worker knows of one that has no device."""

    def __init__(self, name):
        here = Devices(["cpu", "cuda:0"], {}, "one host", ["GPU-1"])
        self.peer = Peer(name, Devices(["cpu"], {}, "one host"), here)

    def way(self, tensor):
        return self.peer.way(OnDevice(tensor.shape))

    def twin(self, device):
        return self.peer.twin(torch.device("cuda:0"))


class OnDevice:
    """What is asked of a tensor to find its way."""

    device = torch.device("cuda:0")

    def __init__(self, shape):
        self.shape = shape


@pytest.mark.parametrize("who", ["main", "b"])
@pytest.mark.parametrize("in_context", [False, True])
def test_a_device_that_the_other_side_lacks_is_named_to_who_made_the_call(who, in_context):
    other = "b" if who == "main" else "main"

    @on_workers("main", "b", faults=IN_ORDER)
    def program(simulation):
        with Pretended(simulation, "main", "b"):
            one = torch.tensor([5.0, 7.0], requires_grad=in_context)
            worker = simulation.worker(who)
            known = peers._known_peers[worker]
            peers._known_peers[worker] = dict.fromkeys(known, Lacking(other))
            said = rf"worker '{other}' has \(cpu\), got 'cuda:0' for .* \(2,\) on cuda:0"
            with autograd.context() if in_context else nullcontext():
                with pytest.raises(DeviceError, match=said):
                    rpc.rpc_sync("b", same, (one,))
                peers._known_peers[worker] = known
                assert rpc.rpc_sync("b", same, (one,)).tolist() == [5, 7]

    program()


class InAnyOrder(list):
    """Both ends give back what they have of a connection that is lost, whichever is the first."""

    def __contains__(self, memory):
        return False


class Neighbours:
    """Two workers, as a simulation shows its own."""

    def __init__(self, workers):
        self.worker = {worker.name: worker for worker in workers}.__getitem__


@pytest.mark.parametrize("how", FORGED)
def test_a_result_that_names_one_wrong_ends_the_connection_and_another_is_opened(how):
    change, said = FORGED[how]
    with neighbours("main", "b") as workers:
        for worker in workers:
            attach_autograd(worker)
        main, one = workers[0], torch.ones(3)
        with Pretended(Neighbours(workers), "main", "b") as device:
            device.machine.opened = InAnyOrder()
            assert main.rpc_sync("b", same, (one,)).tolist() == [1, 1, 1]
            path = main.peers.get("b").outgoing
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Export, "fill", forging("b", **change))
                with pytest.raises(ProtocolViolation, match=f"(?=.*worker 'b').*{said}"):
                    main.rpc_sync("b", same, (one,))
            assert eventually(lambda: path.closed)
            assert main.rpc_sync("b", same, (one,)).tolist() == [1, 1, 1]


@pytest.mark.parametrize("step", STEPS)
def test_a_device_without_room_is_named_to_who_sent_it(step):
    program, who = STEPS[step]

    def full(shape, dtype, device, of, near=None):
        if of != who:
            return ALLOCATED(shape, dtype, device, of, near)
        raise segments._no_room(shape, dtype, device, of, RuntimeError("out of memory"))

    said = f"room on 'cpu:0' .* from worker '{who}', got none; .*out of memory"
    run(program, lambda patch: patch.setattr(segments, "allocated", full), said, DeviceError)


@pytest.mark.parametrize("step", STEPS)
def test_a_device_that_fails_while_it_is_read_is_named_with_its_worker(step):
    program, who = STEPS[step]

    def failing(self, planned, devices):
        if self._of == who:
            raise segments.CudaFailure("cudaMemcpyAsync failed: context is destroyed (709)")
        return COPIED(self, planned, devices)

    said = f"of worker '{who}' on cuda:0, got an error of the device, .*is destroyed"
    run(
        program, lambda patch: patch.setattr(segments.Import, "_copied", failing), said, DeviceError
    )
