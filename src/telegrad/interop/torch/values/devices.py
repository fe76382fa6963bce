"""On which device a CUDA tensor arrives: what the device maps of the two workers say.

The sender decides: by its own map for the receiver; else by the receiver's map for the sender,
backwards, so that results return to where arguments came from; else the device of the same name.
It asks the receiver once for its devices and its map, when the first CUDA tensor is to go there, so
a device that is not there is an error before anything is sent.

Gradients need no map: they return to the device of the tensor that they belong to.
"""

import weakref
from typing import Any

import msgspec
import torch

from telegrad.distributed.contexts.context import CURRENT
from telegrad.errors import DeviceError
from telegrad.interop.torch.values import tensors
from telegrad.rpc.current import current_worker
from telegrad.rpc.wire import kinds
from telegrad.rpc.wire.functions import expose
from telegrad.rpc.worker import Worker

__all__ = ["Devices", "Placed", "carry", "register"]


class Placed:
    """A CUDA tensor on its way to a device of another name."""

    __slots__ = ("device", "tensor")

    def __init__(self, tensor: torch.Tensor, device: str) -> None:
        self.tensor = tensor
        self.device = device


class Devices(msgspec.Struct, frozen=True, array_like=True):
    """What a worker says of itself: its devices, and its map for whoever asks."""

    names: list[str]
    map: dict[str, str]

    def of(self, device: str, own_map: dict[str, str], whose: str, what: str) -> str:
        """The device of this worker that takes tensors of `device`, which is the asker's.

        `whose` and `what` are for the error: the worker's name, and what is to go there.
        """
        backwards = {there: here for here, there in self.map.items()}
        chosen = own_map.get(device) or backwards.get(device) or device
        if chosen not in self.names:
            raise DeviceError(
                f"expected a device that worker {whose!r} has ({', '.join(self.names)}), got "
                f"{chosen!r} for {what} on {device}; name another one in "
                f"Options.device_maps[{whose!r}], or send it as .cpu()"
            )
        return chosen


_asked: "weakref.WeakKeyDictionary[Worker, dict[int, Devices]]" = weakref.WeakKeyDictionary()
"""What each worker of this process was told, by the id of who told it: that of one incarnation."""


def register() -> None:
    """Makes what travels known to the serialiser."""
    kinds.register(Placed, _to_parts, _from_parts, tag="torch.placed")


def carry(values: list[Any], worker: Worker, to: str) -> None:
    """Replaces CUDA tensors that go to a device of another name by what travels."""
    for i, value in enumerate(values):
        if isinstance(value, torch.Tensor) and value.is_cuda:
            here = str(value.device)
            own_map = _named(worker.options.device_maps.get(to, {}))
            what = f"a torch tensor of shape {tuple(value.shape)}"
            there = _devices_of(worker, to).of(here, own_map, to, what)
            if there != here:
                values[i] = Placed(value, there)


def _devices_of(worker: Worker, to: str) -> Devices:
    known = _asked.setdefault(worker, {})
    number = worker.find(to).info.id
    found = known.get(number)
    if found is None:
        token = CURRENT.set(None)  # Asking is not part of the program.
        try:
            answer = worker.rpc_sync(to, describe_devices, (worker.name,))
        finally:
            CURRENT.reset(token)
        found = known[number] = msgspec.convert(answer, Devices)
    return found


@expose
def describe_devices(asker: str) -> list[Any]:
    """This worker's devices, and its map for the asker."""
    names = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    return [names, _named(current_worker().options.device_maps.get(asker, {}))]


def _named(device_map: dict[Any, Any]) -> dict[str, str]:
    """The same with devices by their full names: programs say 0 or 'cuda' as well."""
    return {_name(here): _name(there) for here, there in device_map.items()}


def _name(device: Any) -> str:
    found = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    return f"cuda:{found.index or 0}" if found.type == "cuda" else str(found)


def _to_parts(placed: Placed) -> tuple[list[Any], Any]:
    parts, facts = tensors.to_parts(placed.tensor, placed.device)
    return parts, [type(placed.tensor) is torch.nn.Parameter, facts]


def _from_parts(parts: list[Any], facts: Any) -> torch.Tensor:
    is_parameter, inner = facts
    return (tensors.parameter_from_parts if is_parameter else tensors.from_parts)(parts, inner)
