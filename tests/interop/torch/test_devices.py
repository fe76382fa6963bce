"""Which device a tensor goes to, as far as a machine without one can tell."""

import torch
from tests.distributed.simulated import frames_sent, on_workers

from telegrad.distributed import autograd, rpc
from telegrad.interop.torch import framework
from telegrad.interop.torch.devices import placement
from telegrad.interop.torch.devices.placement import Placed
from telegrad.rpc.options import Options
from telegrad.rpc.wire import kinds


@on_workers("main", "b", options=Options(device_maps={"main": {"cuda": "cuda:1"}}))
def test_a_worker_is_asked_once_for_its_devices_and_its_map(simulation):
    worker = rpc.current_worker()
    names = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    with autograd.context() as context_id:
        found = placement._peer(worker, "b")
        assert found.devices.names == names
        assert found.devices.map == {"cuda:0": "cuda:1"}
        sent = frames_sent(simulation)
        assert placement._peer(worker, "b") is found
        assert frames_sent(simulation) == sent
        # Asking is no part of the program: the context knows nobody yet.
        assert autograd._retrieve_context(context_id)._known_worker_ids() == set()


def test_devices_go_by_their_full_names_however_a_map_names_them():
    assert placement._named({0: 1, "cuda": "cuda:1", "cuda:2": torch.device("cpu")}) == {
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
