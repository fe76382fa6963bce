"""What a program chooses about its worker, as ``torch.distributed.rpc`` lets it choose.

Threads, transports and channels are accepted and mean nothing here: telegrad's threads grow on
demand, and it finds the way between two workers itself.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from telegrad.torch.rpc import constants

_Device = int | str | torch.device


class RpcBackendOptions:
    """What every backend lets a program choose: a timeout in seconds, and where workers meet."""

    def __init__(
        self,
        rpc_timeout: float = constants.DEFAULT_RPC_TIMEOUT_SEC,
        init_method: str = constants.DEFAULT_INIT_METHOD,
    ) -> None:
        if not isinstance(rpc_timeout, (int, float)) or not isinstance(init_method, str):
            raise TypeError(
                "incompatible constructor arguments: expected rpc_timeout in seconds and a URL as "
                f"init_method, got {type(rpc_timeout).__name__} and {type(init_method).__name__}"
            )
        self.rpc_timeout = float(rpc_timeout)
        self.init_method = init_method


class TensorPipeRpcBackendOptions(RpcBackendOptions):
    """The options of the only backend there is, under the name that programs use for it.

    Arguments:
        num_worker_threads: Means nothing here, as `_transports` and `_channels`.
        rpc_timeout: The seconds after which a call fails.
        init_method: Where the workers meet, a URL: ``rendezvous.py``.
        device_maps: By worker, to which device there the tensors of each device here go.
        devices: The CUDA devices that calls may use.

    Raises:
        TypeError: For a timeout or a URL of another type.
        ValueError: For maps that are not one to one, and devices that are not CUDA's.
    """

    def __init__(
        self,
        *,
        num_worker_threads: int = constants.DEFAULT_NUM_WORKER_THREADS,
        rpc_timeout: float = constants.DEFAULT_RPC_TIMEOUT_SEC,
        init_method: str = constants.DEFAULT_INIT_METHOD,
        device_maps: Mapping[str, Mapping[_Device, _Device]] | None = None,
        devices: Sequence[_Device] | None = None,
        _transports: Sequence[str] | None = None,
        _channels: Sequence[str] | None = None,
    ) -> None:
        super().__init__(rpc_timeout, init_method)
        self.num_worker_threads = num_worker_threads
        self.device_maps: dict[str, dict[torch.device, torch.device]] = {}
        for to, device_map in (device_maps or {}).items():
            self.set_device_map(to, device_map)
        self.devices: list[torch.device] = []
        self.set_devices(devices or [])

    def set_device_map(self, to: str, device_map: Mapping[Any, Any]) -> None:
        """Add to which device of worker `to` the tensors of each device here go."""
        found = self.device_maps.setdefault(to, {})
        taken: dict[torch.device, torch.device] = {}
        for given, wanted in device_map.items():
            here, there = torch.device(given), torch.device(wanted)
            if there in taken:
                raise ValueError(
                    "`device_map` only supports 1-to-1 mapping, trying to map "
                    f"{here} and {taken[there]} to {there}"
                )
            if found.get(here, there) != there:
                raise ValueError(
                    "`set_device_map` only supports 1-to-1 mapping, trying to map "
                    f"{here} to {there} and {found[here]}"
                )
            taken[there] = here
        found.update({here: there for there, here in taken.items()})

    def set_devices(self, devices: Sequence[_Device]) -> None:
        """Name the CUDA devices that calls may use."""
        chosen = [torch.device(device) for device in devices]
        for device in chosen:
            if device.type != "cuda":
                raise ValueError(
                    "`set_devices` expect a list of CUDA devices, but got device type "
                    f"{device.type}."
                )
        self.devices = chosen
