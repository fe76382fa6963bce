"""Tensors in pieces, through the host's memory."""

import msgspec
import pytest
import torch
from tests.distributed.simulated import IN_ORDER, on_workers

from telegrad.distributed import rpc
from telegrad.errors import DeviceError, ProtocolViolation
from telegrad.interop.torch.devices import peers, placement, staging
from telegrad.interop.torch.devices.staging import (
    PIECE,
    ReceiveBuffers,
    Staging,
    Transfer,
    pieces,
    to_host,
)


def pair(simulation):
    return [Staging(simulation.worker(name)) for name in ("main", "b")]


@pytest.mark.parametrize("nbytes", [1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 5])
def test_pieces_follow_each_other_and_cover_everything(nbytes):
    found = list(pieces(nbytes))
    assert found[0][0] == 0
    assert found[-1][1] == nbytes
    assert all(end - start == PIECE for start, end in found[:-1])
    assert [start for start, _ in found[1:]] == [end for _, end in found[:-1]]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.bool], ids=str
)
def test_a_tensor_arrives_whole_in_whatever_order_its_pieces_come(dtype):
    @on_workers("main", "b")
    def program(simulation):
        sender, receiver = pair(simulation)
        count = 2 * PIECE // dtype.itemsize + 3
        value = torch.arange(count, dtype=torch.float32).to(dtype).reshape(1, -1)
        transfer = sender.send("b", value, "cpu")
        assert torch.equal(receiver.take("main", transfer), value)
        with pytest.raises(ProtocolViolation, match="names the staged tensor 1, which it never"):
            receiver.take("main", transfer)

    program()


@on_workers("main", "b", faults=IN_ORDER)
def test_what_is_turned_round_or_conjugated_arrives_as_it_looks(simulation):
    sender, receiver = pair(simulation)
    for value in (torch.arange(6.0).reshape(2, 3).T, torch.tensor([1 + 2j, 3j]).conj()):
        assert torch.equal(receiver.take("main", sender.send("b", value, "cpu")), value)


@on_workers("main", "b", faults=IN_ORDER)
def test_pieces_and_tensors_that_make_no_sense_are_refused(simulation):
    _, receiver = pair(simulation)
    worker = rpc.current_worker()
    array = torch.zeros(4, dtype=torch.uint8).numpy()

    def ask(transfer, start, content=array):
        deadline = worker.outgoing.deadline(None)
        header = [msgspec.to_builtins(transfer), start]
        worker.outgoing.service(
            "b", "torch.staging.piece", header, [content], deadline, waits=True
        ).wait()

    good = Transfer(5, "cpu", "float32", [1])
    for transfer, start, said in (
        (good, 4, "bytes 4 to 8 of a staged tensor of 4 bytes, which are no piece of it"),
        (Transfer(5, "cpu", "float32", [2]), 0, "bytes 0 to 4 of a staged tensor of 8"),
        (Transfer(5, "cpu", "nothing", [1]), 0, "got 'nothing' and"),
        (Transfer(5, "cpu", "float32", [0]), 0, r"and \[0\]"),
        (Transfer(5, "cpu", "float32", [-1]), 0, "malformed facts of a device's tensor came"),
        # Found out at once, however many pieces it would have.
        (Transfer(5, "cpu", "uint8", [1 << 62]), 4, "bytes 4 to 8 of a staged tensor of 46116860"),
        (Transfer(5, "meta", "float32", [1]), 0, "'main' to name a device of CUDA .* got 'meta'"),
    ):
        with pytest.raises(ProtocolViolation, match=said):
            ask(transfer, start)
    with pytest.raises(DeviceError, match=r"room on 'cuda:9' .* from worker 'main'"):
        ask(Transfer(6, "cuda:9", "float32", [1]), 0)
    with pytest.raises(DeviceError, match=r"room on 'cpu' .* from worker 'main'"):
        ask(Transfer(7, "cpu", "uint8", [1 << 62]), 0, torch.zeros(PIECE).byte().numpy())
    ask(good, 0)
    with pytest.raises(ProtocolViolation, match="names the staged tensor 5, which it never sent"):
        receiver.take("main", Transfer(5, "cpu", "float32", [2]))


@on_workers("main", "b", faults=IN_ORDER)
def test_a_piece_that_comes_twice_does_not_stand_for_another(simulation):
    _, receiver = pair(simulation)
    transfer = Transfer(5, "cpu", "uint8", [2 * PIECE])
    deadline = rpc.current_worker().outgoing.deadline(None)

    def send(start, transfer=transfer):
        content = [torch.ones(PIECE, dtype=torch.uint8).numpy()]
        header = [msgspec.to_builtins(transfer), start]
        outgoing = rpc.current_worker().outgoing
        outgoing.service("b", "torch.staging.piece", header, content, deadline, waits=True).wait()

    send(0)
    with pytest.raises(ProtocolViolation, match="of its staged tensor 5 again, or of another size"):
        send(0)
    with pytest.raises(ProtocolViolation, match="which it never sent whole"):
        receiver.take("main", transfer)
    send(0)
    with pytest.raises(ProtocolViolation, match="of its staged tensor 5 again, or of another size"):
        send(PIECE, Transfer(5, "cpu", "uint8", [3 * PIECE]))
    send(PIECE)
    assert receiver.take("main", transfer).sum() == 2 * PIECE


@on_workers("main", "b", faults=IN_ORDER)
def test_what_no_message_asked_for_goes_with_its_sender(simulation):
    sender, receiver = pair(simulation)
    sender.send("b", torch.ones(8), "cpu")
    assert len(receiver._came) == 1
    receiver._on_lost(simulation.worker("main").info, ConnectionError())
    assert receiver._came == {}


def test_what_is_in_the_host_s_memory_stays_there():
    value = torch.ones(3)
    assert to_host(value).data_ptr() == value.data_ptr()


def test_pieces_are_received_into_pinned_memory_and_few_of_it_are_lent(monkeypatch):
    plain, pinned, empty = [], [], torch.empty

    def memory(nbytes):
        plain.append(nbytes)
        return memoryview(bytearray(nbytes))

    def pinned_memory(nbytes, dtype, pin_memory):
        pinned.append(nbytes)
        return empty(nbytes, dtype=dtype)

    buffers = ReceiveBuffers(memory)
    monkeypatch.setattr(staging.torch, "empty", pinned_memory)
    sizes = [PIECE + 80] * (staging._MOST_RECEIVED + 2) + [PIECE // 2, 4 * PIECE]
    lent = [buffers(nbytes) for nbytes in sizes]
    assert [len(view) for view in lent] == sizes
    assert pinned == sizes[: staging._MOST_RECEIVED]
    assert plain == sizes[staging._MOST_RECEIVED :]
    # A part of one keeps it.
    part = lent[0][7:]
    lent.clear()
    assert len(buffers._lent) == 1
    del part
    assert not buffers._lent


def test_where_there_is_no_pinned_memory_they_are_received_all_the_same(monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(staging.torch, "empty", refuse)
    assert (
        len(ReceiveBuffers(lambda nbytes: memoryview(bytearray(nbytes)))(PIECE + 80)) == PIECE + 80
    )


class Abroad:
    """What a worker knows of another one on another host, whose device is the host's memory."""

    def way(self, tensor):
        return "cpu:0", False

    def twin(self, device):
        return None


@on_workers("main", "b", faults=IN_ORDER)
def test_a_large_sparse_tensor_and_a_gradient_go_in_pieces_by_indices_and_values(
    simulation, monkeypatch
):
    main, other = simulation.worker("main"), simulation.worker("b")
    peers.staging_of(other)
    peers._known_peers[main] = {main.find("b").info: Abroad()}
    places = torch.arange(1 << 15).reshape(1, -1)
    value = torch.sparse_coo_tensor(places, torch.rand(1 << 15, 9), (1 << 16, 9))
    (packed,) = placement.pack([value], main, "b")
    (found,) = placement.unpack([msgspec.to_builtins(packed)], other, "main")
    load = placement.Load(main, "b", False)
    placed = placement.Placed(value.coalesce(), "cpu:0", load, load.add(value))
    values = [placement.from_parts([], msgspec.to_builtins(placement.to_parts(placed)[1]))]
    monkeypatch.setattr(placement, "_Order", lambda *args: None)
    placement.arrive(values, other, "main")
    for each in (found, *values):
        assert torch.equal(each._indices(), places)
        assert torch.equal(each._values(), value._values())
    assert (found.is_coalesced(), values[0].is_coalesced()) == (False, True)
    # A small one goes in the frame.
    assert load.stage(value.to_dense()[:8].to_sparse(), "cpu:0") == []
