"""The options of a worker, as ``torch.distributed.rpc`` has them.

Those for threads, transports and channels are accepted but have no effect: telegrad starts threads
on demand and chooses the connection between two workers itself.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from telegrad.torch.rpc import constants

_Device = int | str | torch.device


class RpcBackendOptions:
    """The options of every backend: the calls' default timeout in seconds, and a URL to meet at."""

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
    """The options of the only backend, under the name that programs use.

    Arguments:
        num_worker_threads: Accepted without effect, as `_transports` and `_channels` are.
        rpc_timeout: The default timeout of calls, in seconds.
        init_method: Where workers meet: ``env://``, ``tcp://host:port`` or ``file:///path``.
        device_maps: For each worker, a map from devices here to devices there.
        devices: The CUDA devices that calls may use.

    Raises:
        TypeError: If the timeout or the URL has the wrong type.
        ValueError: If a map is not one to one, or a device is not a CUDA device.
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
        """Add entries to the map from devices here to those of worker `to`."""
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
        """Set the CUDA devices that calls may use."""
        chosen = [torch.device(device) for device in devices]
        for device in chosen:
            if device.type != "cuda":
                raise ValueError(
                    "`set_devices` expect a list of CUDA devices, but got device type "
                    f"{device.type}."
                )
        self.devices = chosen
