"""The libraries whose remote calls are measured, behind one small face.

telegrad comes twice, with its own tensors and with PyTorch's; and each of the two also with `spin`
off, since PyTorch's transport has nothing like it. Programs name a library by its key, which is
what travels to the workers; where it runs, the library is imported when first needed.
"""

from contextlib import AbstractContextManager
from functools import cache
from typing import Any, NamedTuple

import numpy as np

__all__ = ["SIDES", "Library", "Side", "cluster", "library"]


class Side(NamedTuple):
    """A column: whose library, and how its workers wait."""

    library: str
    spins: bool = True


SIDES = {
    "telegrad": Side("telegrad"),
    "telegrad, torch tensors": Side("telegrad-torch"),
    "telegrad, no spin": Side("telegrad", spins=False),
    "telegrad, torch tensors, no spin": Side("telegrad-torch", spins=False),
    "PyTorch": Side("torch"),
}


class Library(NamedTuple):
    """What the programs need of a library."""

    key: str
    rpc: Any
    autograd: Any
    nn: Any
    tanh: Any
    no_grad: Any
    make: Any

    def tensor(self, values: Any, requires_grad: bool = True) -> Any:
        """A tensor of single precision."""
        made = self.make(np.asarray(values, dtype=np.float32))
        return made.requires_grad_() if requires_grad else made


@cache
def library(key: str) -> Library:
    """The library of that key."""
    if key == "telegrad":
        import telegrad as tg
        from telegrad.distributed import autograd, rpc

        return Library(key, rpc, autograd, tg.nn, tg.tanh, tg.no_grad, tg.tensor)
    import torch

    torch.set_num_threads(1)
    values = (torch.nn, torch.tanh, torch.no_grad, torch.tensor)
    if key == "telegrad-torch":
        from telegrad.distributed import autograd, rpc

        return Library(key, rpc, autograd, *values)
    from torch.distributed import autograd as torch_autograd
    from torch.distributed import rpc as torch_rpc

    return Library(key, torch_rpc, torch_autograd, *values)


def cluster(side: Side, names: list[str]) -> AbstractContextManager[Any]:
    """Workers of those names beside this process, which is `main`."""
    if side.library == "torch":
        from benchmarks.torch_cluster import TorchCluster

        return TorchCluster(names)
    from telegrad.distributed import LocalCluster
    from telegrad.distributed.rpc import Options

    return LocalCluster(names, options=None if side.spins else Options(spin=0.0))
