"""Which device a tensor goes to, as far as a machine without one can tell."""

import msgspec
import pytest
import torch
from tests.distributed.device_handlers import forget_torch
from tests.distributed.simulated import frames_sent, on_workers

from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.errors import DeviceError
from telegrad.interop.torch import framework
from telegrad.interop.torch.devices import peers
from telegrad.interop.torch.devices.peers import Devices, Peer
from telegrad.interop.torch.devices.placement import Placed
from telegrad.rpc.options import Options
from telegrad.rpc.wire import kinds


@on_workers("main", "b", options=Options(device_maps={"main": {"cuda": "cuda:1"}}))
def test_a_worker_is_asked_once_for_its_devices_and_its_map(simulation):
    worker = rpc.current_worker()
    names = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    with autograd.context() as context_id:
        found = peers.peer_of(worker, "b")
        assert found.devices.names == names
        assert found.devices.map == {"cuda:0": "cuda:1"}
        sent = frames_sent(simulation)
        assert peers.peer_of(worker, "b") is found
        assert frames_sent(simulation) == sent
        # Asking is no part of the program: the context knows nobody yet.
        assert autograd._retrieve_context(context_id)._known_worker_ids() == set()


@pytest.mark.processes
def test_a_worker_without_pytorch_is_named_where_it_would_have_to_take_a_device_tensor():
    said = "expected PyTorch on worker 'b', as here, to take tensors of a device, got an error"
    with (
        LocalCluster(["b"], initializer=forget_torch),
        pytest.raises(DeviceError, match=said) as caught,
    ):
        peers.peer_of(rpc.current_worker(), "b")
    assert "torch" in str(caught.value.__cause__)


def test_devices_go_by_their_full_names_however_a_map_names_them():
    assert peers._named({0: 1, "cuda": "cuda:1", "cuda:2": torch.device("cpu")}) == {
        "cuda:0": "cuda:1",
        "cuda:2": "cpu",
    }


def test_a_tensor_on_its_way_to_a_device_keeps_its_class_and_its_flag():
    assert framework.Torch.type is torch.Tensor  # Importing it makes all of this known.
    kind = kinds.find(Placed)
    for value in (
        torch.ones(2),
        torch.ones(2, dtype=torch.bfloat16, requires_grad=True),
        torch.nn.Parameter(torch.ones(2)),
        torch.nn.Parameter(torch.ones(2), requires_grad=False),
    ):
        found = kind.from_parts(*kind.to_parts(Placed(value, "cpu")))
        assert type(found) is type(value)
        assert found.requires_grad == value.requires_grad
        assert torch.equal(found, value)


HERE = Devices(["cpu", "cuda:0", "cuda:1"], {}, "one host", ["GPU-a", "GPU-b"])


class OnDevice:
    """What is asked of a tensor to find its way."""

    def __init__(self, index):
        self.device = torch.device("cuda", index)
        self.shape = (2, 3)


def test_several_devices_of_one_host_are_told_apart_by_what_they_are_not_by_their_names():
    # Another process may see them in another order.
    there = Devices(["cpu", "cuda:0", "cuda:1"], {}, "one host", ["GPU-b", "GPU-a"])
    peer = Peer("b", there, HERE)
    assert [peer.way(OnDevice(i)) for i in range(2)] == [("cuda:0", True), ("cuda:1", True)]
    assert [peer.twin(torch.device("cuda", i)) for i in range(2)] == ["cuda:1", "cuda:0"]


def test_a_device_that_only_one_of_them_sees_leads_through_the_host_s_memory():
    there = Devices(["cpu", "cuda:0"], {"cuda:0": "cuda:1"}, "one host", ["GPU-b"])
    peer = Peer("b", there, HERE)
    # Results return to where arguments came from.
    assert peer.way(OnDevice(1)) == ("cuda:0", True)
    assert peer.way(OnDevice(0)) == ("cuda:0", False)
    assert peer.twin(torch.device("cuda:0")) is None
    mapped = Peer("b", there, msgspec.structs.replace(HERE, map={"cuda:0": "cpu"}))
    assert mapped.way(OnDevice(0)) == ("cpu", False)


def test_between_hosts_no_segments_lead_to_a_device_of_the_same_name():
    there = msgspec.structs.replace(HERE, host="another host")
    peer = Peer("b", there, HERE)
    assert peer.way(OnDevice(1)) == ("cuda:1", False)
    assert peer.twin(torch.device("cuda:1")) is None


def test_a_device_that_is_not_there_is_named_with_its_worker():
    peer = Peer("b", Devices(["cpu"], {}), HERE)
    with pytest.raises(DeviceError, match=r"worker 'b' has \(cpu\), got 'cuda:1' for a tensor of"):
        peer.way(OnDevice(1))
