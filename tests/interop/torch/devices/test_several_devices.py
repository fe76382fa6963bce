"""Two devices in one host, as far as a machine without them can tell.

Their memory is the host's, and tensors say on which of them they are.
"""

from contextlib import contextmanager

import msgspec
import pytest
import torch
from tests.distributed.simulated import IN_ORDER, on_workers
from tests.interop.torch.devices.host_runtime import HostRuntime, Machine

from telegrad.errors import DeviceError
from telegrad.interop.torch.devices import peers, placement, segments
from telegrad.interop.torch.devices.channels import Channels
from telegrad.interop.torch.devices.peers import Devices, Peer


class OnFirst(torch.Tensor):
    device = torch.device("cuda", 0)
    is_cuda = True


class OnSecond(torch.Tensor):
    device = torch.device("cuda", 1)
    is_cuda = True


ON = {"cuda:0": OnFirst, "cuda:1": OnSecond}


class SeveralDevices(HostRuntime):
    """A process that sees devices by these uuids; `log` has on which of them each step was."""

    def __init__(self, machine, *uuids):
        super().__init__(machine)
        self._uuids = uuids
        self._current = 0

    def note(self, what, stream=None):
        assert stream in (None, self.stream(self._current))
        self.log.append((self._current, what))

    def uuids(self):
        return list(self._uuids)

    @contextmanager
    def on(self, device):
        before, self._current = self._current, device
        yield
        self._current = before

    def stream(self, device):
        return 7 + device

    # Memory and events belong to the device that was current when they were made.

    def allocate(self, nbytes):
        return self._owned(super().allocate(nbytes))

    def make_event(self):
        return self._owned(super().make_event())

    def _owned(self, made):
        self.machine.owners[made] = self._uuids[self._current]
        return made

    def _check_owner(self, value):
        assert self.machine.owners[value] == self._uuids[self._current]

    def open_memory(self, handle):
        found = super().open_memory(handle)
        self._check_owner(found)
        return found

    def open_event(self, handle):
        found = super().open_event(handle)
        self._check_owner(found)
        return found

    def record(self, event, stream):
        self._check_owner(event)
        super().record(event, stream)

    def free(self, memory):
        self._check_owner(memory)
        super().free(memory)


MOVED = segments.moved
HERE = "GPU-a", "GPU-b"
THERE = "GPU-b", "GPU-a"
"""In this order the other process sees them."""


@pytest.fixture(autouse=True)
def _room(monkeypatch):
    """Tensors that arrive say that they are where they were to be."""

    def allocated(shape, dtype, device, of, near):
        return torch.empty(shape, dtype=dtype).as_subclass(ON[f"cuda:{near}"])

    monkeypatch.setattr(segments, "allocated", allocated)
    monkeypatch.setattr(
        segments, "moved", lambda tensor, device, of: tensor.as_subclass(ON[device])
    )
    monkeypatch.setattr(placement.tensors, "is_dense", lambda tensor: True)


def pair(simulation, there=THERE):
    machine = Machine()
    machine.owners = {}
    ends = []
    for name, other, seen, theirs in (("main", "b", HERE, there), ("b", "main", there, HERE)):
        worker = simulation.worker(name)
        ends.append(Channels(worker, SeveralDevices(machine, *seen)))
        peers.CHANNELS[worker] = ends[-1]
        mine, its = (
            Devices(["cpu", *ON][: 1 + len(uuids)], {}, "one host", list(uuids))
            for uuids in (seen, theirs)
        )
        peer = Peer(other, its, mine)
        peers._known_peers[worker] = {worker.find(other).info: peer}
    return ends


def on(device, *numbers):
    return torch.tensor(numbers).as_subclass(ON[device])


def packed(simulation, *tensors):
    values = list(tensors)
    placement.carry(values, simulation.worker("main"), "b")
    return [
        placement.from_parts([], msgspec.to_builtins(placement.to_parts(each)[1]))
        for each in values
    ]


def arrived(values, simulation, monkeypatch):
    monkeypatch.setattr(placement, "_Order", lambda *args: None)
    placement.arrive(values, simulation.worker("b"), "main")
    return values


@on_workers("main", "b", faults=IN_ORDER)
def test_each_device_of_a_message_has_a_segment_of_its_own(simulation, monkeypatch):
    sender, receiver = pair(simulation, HERE)
    given = [on("cuda:0", 1.0), on("cuda:1", 2.0), on("cuda:0", 3.0)]
    sent = packed(simulation, *given)
    assert [each.device for each in sent] == ["cuda:0", "cuda:1", "cuda:0"]
    assert [pool.held for pool in sender._pools.values()] == [2 << 20, 2 << 20]
    assert sender.cuda.log == [(0, "copy"), (0, "copy"), (0, "record"), (1, "copy"), (1, "record")]
    found = arrived(sent, simulation, monkeypatch)
    assert [each.tolist() for each in found] == [[1], [2], [3]]
    assert [type(each) for each in found] == [OnFirst, OnSecond, OnFirst]
    assert receiver.cuda.log == [
        *[(0, "wait"), (0, "copy"), (0, "copy"), (0, "record")],
        *[(1, "wait"), (1, "copy"), (1, "record")],
    ]


@on_workers("main", "b", faults=IN_ORDER)
def test_to_another_device_it_goes_by_the_segment_s_and_nobody_waits(simulation, monkeypatch):
    sender, receiver = pair(simulation)
    for use in range(2):
        sent = packed(simulation, on("cuda:0", 1.0, 2.0), on("cuda:0", 3.0))
        receiver.cuda.log.clear()
        found = arrived(sent, simulation, monkeypatch)
        assert [each.tolist() for each in found] == [[1, 2], [3]]
        # The device of the same name is another one there.
        assert [type(each) for each in found] == [OnFirst, OnFirst]
        assert receiver.cuda.log == [(1, "wait"), (1, "copy"), (1, "copy"), (1, "record")]
        assert not sender._pools[0].of("b")[0].is_held()
        assert sender.cuda.log[-4:][0] == ((0, "wait") if use else (0, "copy"))


@on_workers("main", "b", faults=IN_ORDER)
def test_a_copy_between_devices_that_fails_names_the_segment_and_its_worker(
    simulation, monkeypatch
):
    sender, _ = pair(simulation)
    sent = packed(simulation, on("cuda:0", 1.0))
    sender.cuda.machine.is_reset = True
    with pytest.raises(DeviceError, match=r"segment 1 of worker 'main' on cuda:1, got an error"):
        arrived(sent, simulation, monkeypatch)


@on_workers("main", "b", faults=IN_ORDER)
def test_gradients_return_to_the_device_that_they_are_on_whatever_it_is_called_there(simulation):
    sender, receiver = pair(simulation)
    worker, other = simulation.worker("main"), simulation.worker("b")
    given = [on("cuda:1", 1.0), on("cuda:0", 2.0), on("cuda:1", 5.0).expand(3)]
    sent = placement.pack(given, worker, "b")
    assert [each.device for each in sent] == ["cuda:0", "cuda:1", "cuda:0"]
    found = placement.unpack(msgspec.to_builtins(sent), other, "main")
    assert [each.tolist() for each in found] == [[1], [2], [5, 5, 5]]
    assert {step for _, step in receiver.cuda.log} == {"wait", "copy", "record"}
    assert len(sender._pools) == 2


@on_workers("main", "b", faults=IN_ORDER)
def test_another_device_without_room_is_named_and_the_segment_goes_back(simulation, monkeypatch):
    def refuse(tensor, device):
        raise RuntimeError(f"out of memory on {device}")

    sender, _ = pair(simulation)
    sent = packed(simulation, on("cuda:0", 1.0))
    with monkeypatch.context() as patch:
        patch.setattr(segments, "moved", MOVED)
        patch.setattr(OnSecond, "to", refuse)
        said = r"room on 'cuda:0' .* \(1,\) .* from worker 'main', .*out of memory on cuda:0"
        with pytest.raises(DeviceError, match=said):
            arrived(sent, simulation, monkeypatch)
    assert not sender._pools[0].of("b")[0].is_held()
    again = packed(simulation, on("cuda:0", 2.0))
    assert arrived(again, simulation, monkeypatch)[0].tolist() == [2]


@on_workers("main", "b", faults=IN_ORDER)
def test_what_was_shared_goes_back_on_the_devices_where_it_was_made(simulation, monkeypatch):
    sender, receiver = pair(simulation)
    sent = packed(simulation, on("cuda:0", 1.0), on("cuda:1", 2.0))
    arrived(sent, simulation, monkeypatch)
    for end in (receiver, sender):
        end.close()
    assert sender.cuda.machine.buffers == {}
    assert sender.cuda.machine.events == {}


@on_workers("main", "b", faults=IN_ORDER)
def test_of_devices_that_only_one_of_them_sees_the_shared_ones_lead_there(simulation):
    # As with CUDA_VISIBLE_DEVICES=0,1 here and =1 there.
    pair(simulation, ("GPU-b",))
    worker = simulation.worker("main")
    (sent,) = placement.pack([on("cuda:1", 1.0)], worker, "b")
    assert sent.device == "cuda:0"
    found = placement.unpack(msgspec.to_builtins([sent]), simulation.worker("b"), "main")
    assert found[0].tolist() == [1]
    # The other one's numbers go as an array.
    assert peers.peer_of(worker, "b").twin(torch.device("cuda:0")) is None
    with pytest.raises(DeviceError, match=r"worker 'b' has \(cpu, cuda:0\), got 'cuda:1' for"):
        packed(simulation, on("cuda:1", 1.0))
