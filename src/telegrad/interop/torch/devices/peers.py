"""What workers know of each other's devices: names, maps, and whether segments can be used.

The sender chooses the device where a tensor arrives: by its own map for the receiver; else by the
inverse of the receiver's map for the sender, so that results return to where arguments came from;
else the device of the same name. It asks the receiver for its devices and its map once, before the
first CUDA tensor, so a missing device is an error before anything is sent.

This module also keeps each worker's `Channels` and `Staging`, the two ways that tensors take.
"""

import os
import threading
import weakref
from functools import cache
from typing import Any

import msgspec
import torch

from telegrad.distributed.contexts.context import CURRENT
from telegrad.errors import DeviceError, UsageError
from telegrad.interop.torch.devices.channels import Channels
from telegrad.interop.torch.devices.runtime import CudaFailure, runtime
from telegrad.interop.torch.devices.segments import checker
from telegrad.interop.torch.devices.staging import Staging
from telegrad.rpc.current import current_worker
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.wire.functions import expose
from telegrad.rpc.worker import Worker


class Devices(msgspec.Struct, frozen=True, array_like=True):
    """A worker's description of itself: its devices, its map for the asking worker, and its host.

    `host` names the machine, process namespace and user; empty if the worker takes no segments.
    """

    names: list[str]
    map: dict[str, str]
    host: str = ""
    uuids: list[str] = []

    def of(self, device: str, own_map: dict[str, str], whose: str, what: str) -> str:
        """Return the device of this worker that takes tensors of the asking worker's `device`.

        `whose` and `what` are for the error: this worker's name, and what is to be sent.
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


_as_devices = checker(Devices)


class Peer:
    """What one worker knows of another: where tensors go, and whether segments may be used."""

    def __init__(self, to: str, devices: Devices, own: Devices) -> None:
        """Take the peer's devices, and this worker's `own` with its map for `to`."""
        self.devices = devices
        self._to = to
        self._map = own.map
        self._shared = set(own.uuids) & set(devices.uuids) if own.host == devices.host else set()
        self._own = own.uuids
        self._found: dict[torch.device, tuple[str, bool]] = {}
        self._twins: dict[torch.device, str] = {}

    def way(self, tensor: torch.Tensor) -> tuple[str, bool]:
        """Return the peer's device for a tensor, and whether a segment can take it there."""
        here = tensor.device
        found = self._found.get(here)
        if found is None:
            what = f"a tensor of shape {tuple(tensor.shape)}"
            there = self.devices.of(str(here), self._map, self._to, what)
            is_shared = bool(self._shared) and self._own[here.index or 0] in self._shared
            found = self._found[here] = there, is_shared and there != "cpu"
        return found

    def twin(self, device: torch.device) -> str | None:
        """Return the peer's name for this physical device, if both workers share it."""
        if not self._shared:
            return None
        found = self._twins.get(device)
        if found is None and (uuid := self._own[device.index or 0]) in self._shared:
            found = self._twins[device] = f"cuda:{self.devices.uuids.index(uuid)}"
        return found


_known_peers: "weakref.WeakKeyDictionary[Worker, dict[WorkerInfo, Peer]]" = (
    weakref.WeakKeyDictionary()
)
"""For each worker of this process, what it knows of its peers (of one incarnation each)."""
_making = threading.Lock()
CHANNELS: "weakref.WeakKeyDictionary[Worker, Channels]" = weakref.WeakKeyDictionary()
_stagings: "weakref.WeakKeyDictionary[Worker, Staging]" = weakref.WeakKeyDictionary()


def staging_of(worker: Worker) -> Staging:
    """Return the worker's transfers through the host's memory."""
    with _making:
        found = _stagings.get(worker)
        if found is None:
            found = _stagings[worker] = Staging(worker)
    return found


def peer_of(worker: Worker, to: str) -> Peer:
    """Return what a worker knows of another one, asking that one the first time."""
    known = _known_peers.get(worker)
    if known is None:
        known = _known_peers[worker] = {}
    info = worker.find(to).info
    found = known.get(info)
    if found is None:
        token = CURRENT.set(None)  # This call must not be recorded in the user's context.
        try:
            answer = worker.rpc_sync(to, describe_devices, (worker.name,))
        except UsageError as error:
            raise DeviceError(
                f"expected PyTorch on worker {to!r}, as here, to take tensors of a device, got an "
                "error where it was to be imported: install it there, or send them as .cpu()"
            ) from error
        finally:
            CURRENT.reset(token)
        found = known[info] = Peer(to, _as_devices(answer), _description(worker, to))
    return found


@expose
def describe_devices(asker: str) -> Any:
    """Return this worker's devices, and its map for the asking worker."""
    return msgspec.to_builtins(_description(current_worker(), asker))


def _description(worker: Worker, asker: str) -> Devices:
    staging_of(worker)  # Registers the service: the asking worker may send pieces from now on.
    names = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    named = _named(worker.options.device_maps.get(asker, {}))
    if not worker.options.device_segments or len(names) == 1:
        return Devices(names, named)
    try:
        with _making:
            channels = CHANNELS.get(worker)
            if channels is None:
                channels = CHANNELS[worker] = Channels(worker, runtime())
    except (CudaFailure, OSError):
        return Devices(names, named)
    return Devices(names, named, _host(), channels.uuids)


@cache
def _host() -> str:
    """Return an id that processes which can share devices have in common: machine, PIDs, user."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        machine = file.read().strip()
    return f"{machine} {os.readlink('/proc/self/ns/pid')} {os.getuid()}"


def _named(device_map: dict[Any, Any]) -> dict[str, str]:
    """Return the map with full device names, since programs also write 0 or 'cuda'."""
    return {_name(here): _name(there) for here, there in device_map.items()}


def _name(device: Any) -> str:
    found = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    return f"cuda:{found.index or 0}" if found.type == "cuda" else str(found)
