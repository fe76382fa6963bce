"""The programs that bench_distributed differentiates, written once for both libraries.

Every function here may run on any worker of either; `name` says of which.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Library", "add", "hop", "library", "stage", "step", "train"]

SERVER = "w0"
SIZE = 64


class Library(NamedTuple):
    """What the programs need of a library."""

    name: str
    rpc: Any
    autograd: Any
    tanh: Any
    no_grad: Any
    make: Any

    def tensor(self, values: Any, requires_grad: bool = True) -> Any:
        """A tensor of single precision."""
        made = self.make(np.asarray(values, dtype=np.float32))
        return made.requires_grad_() if requires_grad else made


@cache
def library(name: str) -> Library:
    """The library of that name, imported when first needed."""
    if name == "telegrad":
        import telegrad
        from telegrad.distributed import autograd, rpc

        return Library(name, rpc, autograd, telegrad.tanh, telegrad.no_grad, telegrad.tensor)
    import torch
    from torch.distributed import autograd as torch_autograd
    from torch.distributed import rpc as torch_rpc

    return Library(name, torch_rpc, torch_autograd, torch.tanh, torch.no_grad, torch.from_numpy)


@cache
def weight(name: str) -> Any:
    """This process's parameter."""
    return library(name).tensor(np.eye(SIZE) * 0.9)


def add(x: Any, y: Any) -> Any:
    """One operation on two tensors."""
    return x + y


def hop(name: str, path: Sequence[str], x: Any) -> Any:
    """One operation here, and the rest of the path from here."""
    y = x + x
    return library(name).rpc.rpc_sync(path[0], hop, (name, path[1:], y)) if path else y


def stage(name: str, path: Sequence[str], x: Any) -> Any:
    """A layer with this worker's parameter, and the following ones from here."""
    lib = library(name)
    y = lib.tanh(x @ weight(name))
    return lib.rpc.rpc_sync(path[0], stage, (name, path[1:], y)) if path else y


def step(name: str, context_id: int) -> None:
    """A step of descent on this worker's parameter."""
    lib = library(name)
    w = weight(name)
    gradient = lib.autograd.get_gradients(context_id)[w]
    with lib.no_grad():
        w -= 1e-6 * gradient


def train(name: str, steps: int) -> None:
    """Steps of one trainer against the parameter server."""
    lib = library(name)
    x = lib.tensor(np.ones((8, SIZE)), requires_grad=False)
    for _ in range(steps):
        with lib.autograd.context() as context_id:
            y = lib.rpc.rpc_sync(SERVER, stage, (name, [], x))
            lib.autograd.backward(context_id, [(y * y).sum()])
            lib.rpc.rpc_sync(SERVER, step, (name, context_id))
