"""Segments between two simulated workers, over a runtime whose device is the host's memory."""

import logging
import re

import msgspec
import pytest
import torch
from tests.distributed.simulated import IN_ORDER, on_workers
from tests.interop.torch.devices.host_runtime import HostRuntime, Machine

from telegrad.distributed import rpc
from telegrad.errors import DeviceError, ProtocolViolation
from telegrad.interop.torch.devices import peers, placement
from telegrad.interop.torch.devices.channels import INTRODUCE, Channels
from telegrad.interop.torch.devices.segments import Introduction, Span
from telegrad.rpc.options import Options

MB = 1 << 20
SMALL_POOL = Options(device_segments=4 * MB)
DEVICES = ("cpu",) * 8


class End(Channels):
    """One that shows its segments."""

    def segments(self):
        """Those for `b`."""
        return self._pools[0].of("b")

    def lose(self, name):
        """Note that a worker is gone."""
        self._forgotten(name)()


def pair(simulation, **options):
    """The ends of `main` and `b`, on one machine."""
    machine = Machine(**options)
    return [End(simulation.worker(name), HostRuntime(machine)) for name in ("main", "b")]


def sent(sender, receiver, *tensors):
    spans = sender.pack("b", tensors)
    return receiver.unpack("main", spans, DEVICES[: len(spans)])


@on_workers("main", "b", faults=IN_ORDER)
def test_tensors_of_a_message_go_together_and_the_segment_is_filled_again(simulation):
    sender, receiver = pair(simulation)
    given = [
        torch.arange(6.0).reshape(2, 3).T,
        torch.ones(0, 3),
        torch.tensor(2.5, dtype=torch.bfloat16),
        torch.tensor([1 + 2j]).conj(),
    ]
    for _ in range(3):
        for before, after in zip(given, sent(sender, receiver, *given)):
            assert after.dtype is before.dtype
            assert torch.equal(after, before)
    assert sender.held() == 2 * MB
    # The first use waits for nothing; then each copy in follows the last copies out.
    assert sender.cuda.log == [*["copy"] * 3, "record", *["wait", *["copy"] * 3, "record"] * 2]
    assert receiver.cuda.log == ["wait", *["copy"] * 3, "record"] * 3


@on_workers("main", "b", faults=IN_ORDER)
def test_a_segment_that_the_receiver_has_is_left_alone(simulation):
    sender, receiver = pair(simulation)
    first, second = sender.pack("b", [torch.ones(3)]), sender.pack("b", [torch.zeros(3)])
    assert first[0].segment != second[0].segment
    assert receiver.unpack("main", second, DEVICES[:1])[0].tolist() == [0, 0, 0]
    assert receiver.unpack("main", first, DEVICES[:1])[0].tolist() == [1, 1, 1]


@on_workers("main", "b", faults=IN_ORDER, options=SMALL_POOL)
def test_beyond_the_bound_nothing_is_packed_and_free_segments_make_room(simulation):
    sender, receiver = pair(simulation)
    spans = [sender.pack("b", [torch.ones(3)]) for _ in range(3)]
    assert spans[2] is None
    assert sender.pack("b", [torch.ones(5 * MB, dtype=torch.uint8)]) is None
    for each in spans[:2]:
        receiver.unpack("main", each, DEVICES[:1])
    assert sent(sender, receiver, torch.ones(3 * MB, dtype=torch.uint8))[0].numel() == 3 * MB
    # Both small ones had to go, and their receiver closed them before.
    assert sender.held() == 4 * MB
    assert len(sender.cuda.machine.buffers) == 1


@on_workers("main", "b", faults=IN_ORDER)
def test_a_device_without_memory_is_no_refusal_and_tried_again(simulation):
    sender, receiver = pair(simulation, room=1 * MB)
    assert sender.pack("b", [torch.ones(3)]) is None
    sender.cuda.machine.room = 8 * MB
    assert sent(sender, receiver, torch.ones(3))[0].tolist() == [1, 1, 1]


@on_workers("main", "b", faults=IN_ORDER)
def test_a_receiver_that_cannot_open_it_is_told_of_once(simulation, caplog):
    sender, receiver = pair(simulation)
    receiver.cuda.refuses = "cudaIpcOpenMemHandle failed: not supported (801)"
    with caplog.at_level(logging.WARNING, "telegrad.rpc"):
        for _ in range(2):
            assert sender.pack("b", [torch.ones(3)]) is None
    (record,) = caplog.records
    said = "go to worker b through the host's memory: worker 'b' can't open it: .*not supported"
    assert re.search(said, record.getMessage())
    assert sender.cuda.machine.buffers == {}


@on_workers("main", "b", faults=IN_ORDER)
def test_a_device_that_the_receiver_does_not_see_is_refused(simulation):
    machine = Machine()
    sender = Channels(simulation.worker("main"), HostRuntime(machine, "GPU-1"))
    Channels(simulation.worker("b"), HostRuntime(machine, "GPU-2"))
    assert sender.pack("b", [torch.ones(3)]) is None
    assert "does not see the device GPU-1" in sender.refusals["b"]


@on_workers("main", "b", faults=IN_ORDER)
def test_forged_and_stale_spans_are_refused(simulation):
    sender, receiver = pair(simulation)
    (span,) = sender.pack("b", [torch.ones(3)])
    number = span.segment
    forged = {
        "names the device segment 99 for a tensor on 'cpu', which it never sent": Span(
            99, 1, 0, "float32", [3]
        ),
        "expected a tensor within": Span(number, 1, 0, "float32", [MB]),
        "at byte 4": Span(number, 1, 4, "float32", [3]),
        "at byte -256": Span(number, 1, -256, "float32", [3]),
        "'float33' and": Span(number, 1, 0, "float33", [3]),
        r"shape \[-1\]": Span(number, 1, 0, "float32", [-1]),
        "after 0, got 0: the message is stale or forged": Span(number, 0, 0, "float32", [3]),
    }
    for said, each in forged.items():
        with pytest.raises(ProtocolViolation, match=said):
            receiver.unpack("main", [each], DEVICES[:1])
    with pytest.raises(ProtocolViolation, match="worker 'c' names the device"):
        receiver.unpack("c", [span], DEVICES[:1])
    assert receiver.unpack("main", [span], DEVICES[:1])[0].tolist() == [1, 1, 1]
    with pytest.raises(ProtocolViolation, match="segment 1 of worker 'main' on cuda:0 after 1"):
        receiver.unpack("main", [span], DEVICES[:1])


@on_workers("main", "b", faults=IN_ORDER)
def test_an_introduction_that_no_worker_makes_is_refused(simulation):
    sender, _ = pair(simulation)
    (span,) = sender.pack("b", [torch.ones(3)])
    segment = sender.segments()[0]
    honest = segment.introduction("GPU-1")
    fields = msgspec.structs.asdict(honest)
    worker = rpc.current_worker()
    for change, said in (
        ({}, f"expected a new device segment, got the number {span.segment} of 'main' again"),
        ({"memory": b"short"}, "expected handles of 64 bytes"),
        ({"place": 1 << 20}, "with mark 1048576"),
        ({"size": 0}, "of 0 bytes"),
        ({"place": "first"}, "malformed facts of a device's tensor came: Expected `int`"),
        ({"segment": 9, "board": (1 << 22, 3, b"x" * 16)}, None),
    ):
        header = Introduction(**{**fields, **change})
        if said is None:
            # Another process's, or none: as if the system did not allow it.
            answer, _ = worker.ask_service("b", INTRODUCE, header)
            assert "worker 'b' can't open it" in answer
        else:
            with pytest.raises(ProtocolViolation, match=said):
                worker.ask_service("b", INTRODUCE, header)


@on_workers("main", "b", faults=IN_ORDER)
def test_a_segment_that_is_said_to_be_larger_than_it_is_is_refused_and_closed(simulation):
    sender, _ = pair(simulation)
    sender.pack("b", [torch.ones(3)])
    machine = sender.cuda.machine
    honest = sender.segments()[0].introduction("GPU-1")
    opened = list(machine.opened)
    forged = msgspec.structs.replace(honest, segment=9, size=1 << 50)
    with pytest.raises(ProtocolViolation, match=r"'main' says that its segment 9 on cuda:0 has"):
        rpc.current_worker().ask_service("b", INTRODUCE, forged)
    assert machine.opened == opened


@on_workers("main", "b", faults=IN_ORDER)
def test_a_device_that_was_reset_is_an_error_that_names_worker_and_device(simulation):
    sender, receiver = pair(simulation)
    spans = sender.pack("b", [torch.ones(3)])
    sender.cuda.machine.is_reset = True
    with pytest.raises(DeviceError, match=r"segment 1 of worker 'main' on cuda:0, got an error"):
        receiver.unpack("main", spans, DEVICES[:1])
    with pytest.raises(DeviceError, match=r"for worker 'b' into a segment of cuda:0, got an error"):
        sender.pack("b", [torch.ones(3)])
    assert not any(segment.is_taken for segment in sender.segments())
    # Neither end can close or free it properly, and nobody else is told.
    sender.trim(sender.segments()[0].used_at + 30)
    assert sender.held() == 0
    assert sender.pack("b", [torch.ones(3)]) is None
    receiver.close()
    sender.close()
    assert sender.cuda.machine.buffers == {}


@on_workers("main", "b", faults=IN_ORDER)
def test_a_device_without_room_for_what_came_is_named_and_the_segment_goes_back(simulation):
    sender, receiver = pair(simulation)
    spans = sender.pack("b", [torch.ones(3)])
    with pytest.raises(DeviceError, match=r"room on 'cuda:9' .* \(3,\) .* from worker 'main'"):
        receiver.unpack("main", spans, ["cuda:9"])
    assert not sender.segments()[0].is_held()
    spans = sender.pack("b", [torch.ones(3)])
    said = "expected worker 'main' to name a device of CUDA for a torch tensor, got 'meta'"
    with pytest.raises(ProtocolViolation, match=said):
        receiver.unpack("main", spans, ["meta"])
    assert not sender.segments()[0].is_held()


@on_workers("main", "b", faults=IN_ORDER)
def test_idle_segments_go_back_and_so_do_those_of_messages_that_nobody_read(simulation):
    sender, receiver = pair(simulation)
    sent(sender, receiver, torch.ones(3))
    lost = sender.pack("b", [torch.ones(3 * MB, dtype=torch.uint8)])
    began = sender.segments()[0].used_at
    sender.trim(began + 5)
    assert sender.held() == 6 * MB
    sender.trim(began + 30)
    assert sender.held() == 4 * MB
    sender.trim(began + 1000)
    assert sender.held() == 0
    assert sender.cuda.machine.buffers == {}
    assert sender.cuda.machine.opened == []
    with pytest.raises(ProtocolViolation, match="never sent or has taken back"):
        receiver.unpack("main", lost, DEVICES[:1])
    assert sent(sender, receiver, torch.ones(3))[0].tolist() == [1, 1, 1]


@on_workers("main", "b", faults=IN_ORDER)
def test_nothing_is_left_of_a_receiver_that_is_lost_or_of_a_worker_that_leaves(simulation):
    sender, receiver = pair(simulation)
    sent(sender, receiver, torch.ones(3))
    receiver.lose("main")
    sender.lose("b")
    assert sender.cuda.machine.buffers == {}
    assert sent(sender, receiver, torch.ones(3))[0].tolist() == [1, 1, 1]
    receiver.close()
    sender.close()
    assert sender.cuda.machine.buffers == {}
    assert sender.cuda.machine.events == {}
    assert sender.pack("b", [torch.ones(3)]) is None


class Twins:
    """What a worker knows of another one on the same machine, whose device is the host."""

    def twin(self, device):
        return "cpu"


@on_workers("main", "b", faults=IN_ORDER)
def test_gradients_go_together_and_one_that_is_one_number_goes_as_one(simulation):
    sender, receiver = pair(simulation)
    main, other = simulation.worker("main"), simulation.worker("b")
    peers.CHANNELS.update({main: sender, other: receiver})
    peers._known_peers[main] = {main.find("b").info: Twins()}
    spread, whole = torch.tensor(3.0).expand(1000, 1000), torch.arange(3.0)
    packed = placement.pack([spread, whole], main, "b")
    assert sender.held() == 2 * MB
    found = placement.unpack(msgspec.to_builtins(packed), other, "main")
    assert torch.equal(found[0], spread)
    assert not any(found[0].stride())
    assert torch.equal(found[1], whole)
    # One that goes to two tensors is copied in once, and out into memory of their own.
    before = sender.cuda.log.count("copy")
    packed = placement.pack([whole, whole], main, "b")
    assert sender.cuda.log.count("copy") == before + 1
    first, second = placement.unpack(msgspec.to_builtins(packed), other, "main")
    assert torch.equal(first, whole)
    assert torch.equal(second, whole)
    assert first.data_ptr() != second.data_ptr()
    (forged,) = placement.pack([whole], main, "b")
    forged = msgspec.structs.replace(forged, shape=[3, 3])
    with pytest.raises(ProtocolViolation, match=r"'main' sent a gradient of shape \(3,\) as one"):
        placement.unpack([msgspec.to_builtins(forged)], other, "main")
    for shape, said in (([1 << 40] * 2, r"of shape \(\) as one number for"), ([-1], "malformed")):
        (forged,) = placement.pack([spread], main, "b")
        forged = msgspec.structs.replace(forged, shape=shape)
        with pytest.raises(ProtocolViolation, match=said):
            placement.unpack([msgspec.to_builtins(forged)], other, "main")


@on_workers("main", "b", faults=IN_ORDER)
def test_a_sparse_tensor_whose_indices_lead_out_of_it_is_refused(simulation):
    sender, receiver = pair(simulation)
    main, other = simulation.worker("main"), simulation.worker("b")
    peers.CHANNELS.update({main: sender, other: receiver})
    peers._known_peers[main] = {main.find("b").info: Twins()}
    honest = torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse()
    for size, said in (
        ([2, 1], "whose indices do not fit"),
        ([2], "do not fit"),
        ([1 << 63], "malformed"),
    ):
        (forged,) = placement.pack([honest], main, "b")
        forged = msgspec.structs.replace(forged, sparse=(size, True))
        with pytest.raises(ProtocolViolation, match=said):
            placement.unpack([msgspec.to_builtins(forged)], other, "main")
    (dense,) = placement.pack([torch.ones(3)], main, "b")
    forged = msgspec.structs.replace(dense, sparse=([2], True))
    with pytest.raises(ProtocolViolation, match="'main' sent a tensor of a device in no way"):
        placement.unpack([msgspec.to_builtins(forged)], other, "main")


@on_workers("main", "b", faults=IN_ORDER)
def test_gradients_that_went_in_segments_and_in_pieces_are_told_apart(simulation):
    sender, receiver = pair(simulation)
    main, other = simulation.worker("main"), simulation.worker("b")
    peers.CHANNELS.update({main: sender, other: receiver})
    peers._known_peers[main] = {main.find("b").info: Twins()}
    peers.staging_of(other)
    sparse = torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse()
    whole = torch.rand(3 << 18)
    # A buffer for each of them, if one did not look whose they are.
    (first,) = placement.pack([sparse], main, "b")
    transfers = [peers.staging_of(main).send("b", whole, "cpu")]
    second = placement._Gradient("cpu", [], transfers, None, None, None)
    found = placement.unpack(msgspec.to_builtins([second, first]), other, "main")
    assert torch.equal(found[0], whole)
    assert torch.equal(found[1].to_dense(), sparse.to_dense())


@on_workers("main", "b", faults=IN_ORDER)
def test_segments_are_refused_from_one_that_was_never_asked(simulation):
    worker = simulation.worker("b")
    facts = ["cpu", [msgspec.to_builtins(Span(1, 1, 0, "float32", [3]))], [], None, None, None]
    with pytest.raises(ProtocolViolation, match="'main' names device segments, which it never"):
        placement.unpack([facts], worker, "main")
    with pytest.raises(ProtocolViolation, match="'main' sent a tensor of a device in no way"):
        placement.unpack([["cpu", [], [], None, None, None]], worker, "main")
