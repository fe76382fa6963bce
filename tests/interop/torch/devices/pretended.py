"""A device that is the host's memory: tensors say that they are on one, and go through segments.

So a program of several simulated workers takes all the roads of a real device, and a tensor that
went through the host's memory instead is an error.
"""

import pytest
import torch
from tests.interop.torch.devices.host_runtime import HostRuntime, Machine

from telegrad.interop.torch import framework
from telegrad.interop.torch.devices import peers, placement
from telegrad.interop.torch.devices.channels import Channels
from telegrad.interop.torch.values import arrays, tensors

__all__ = ["DEVICE", "Pretended"]

DEVICE = "cpu:0"


class OneDevice:
    """What a worker knows of another one on the same machine, whose device is the host."""

    def way(self, tensor):
        return DEVICE, True

    def twin(self, device):
        return DEVICE


class Pretended:
    """Workers of a simulation whose tensors are all on the device; in a ``with`` block."""

    def __init__(self, simulation, *names):
        self._workers = [simulation.worker(name) for name in names]
        self._patch = pytest.MonkeyPatch()
        self.machine = Machine()
        self.channels = {}

    def __enter__(self):
        for worker in self._workers:
            runtime = HostRuntime(self.machine)
            self.channels[worker.name] = peers.CHANNELS[worker] = Channels(worker, runtime)
            infos = {each.name: worker.find(each.name).info for each in self._workers}
            peers._known_peers[worker] = dict.fromkeys(infos.values(), OneDevice())
        patch = self._patch
        patch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: True), raising=False)
        patch.setattr(framework, "_is_cuda_in_use", lambda: True)
        patch.setattr(placement, "runtime", lambda: HostRuntime(self.machine))
        for module, name in ((tensors, "to_parts"), (placement, "raw"), (arrays, "to_host")):
            patch.setattr(module, name, _through_the_host)
        return self

    def __exit__(self, *exc_info):
        self._patch.undo()

    def sent(self):
        """How many times a segment was filled, by all workers."""
        pools = [pool for each in self.channels.values() for pool in each._pools.values()]
        return sum(segment._use for pool in pools for segment in pool._segments)


def _through_the_host(*args, **options):
    raise AssertionError("a tensor of the device went through the host's memory")
