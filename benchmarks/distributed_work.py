"""What bench_distributed calls on other workers; the same functions for every library.

Each may run on any worker; `key` says which library calls on from there. Parameters are made once a
process, also when the first calls for them come together.
"""

import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from benchmarks.libraries import library
from benchmarks.transformer import layer, run_layer

__all__ = ["SERVER", "SIZE", "add", "hop", "layers", "stage", "train"]

SERVER = "w0"
SIZE = 64
_LAYERS = 2
_making = threading.Lock()


def add(x: Any, y: Any) -> Any:
    """One operation on two tensors."""
    return x + y


def hop(key: str, path: Sequence[str], x: Any) -> Any:
    """One operation here, and the rest of the path from here."""
    return _onward(key, path, hop, x + x)


@cache
def _made_weight(key: str) -> Any:
    return library(key).tensor(np.eye(SIZE) * 0.9)


def _weight(key: str) -> Any:
    """This worker's parameter."""
    with _making:
        return _made_weight(key)


def stage(key: str, path: Sequence[str], x: Any) -> Any:
    """A layer with this worker's parameter, and the following ones from here."""
    return _onward(key, path, stage, library(key).tanh(x @ _weight(key)))


@cache
def _made_layers(key: str) -> list[Any]:
    return [layer(library(key).nn) for _ in range(_LAYERS)]


def layers(key: str, path: Sequence[str], x: Any) -> Any:
    """This worker's layers of a transformer, and the following ones from here."""
    with _making:
        mine = _made_layers(key)
    for parts in mine:
        x = run_layer(parts, x)
    return _onward(key, path, layers, x)


def _onward(key: str, path: Sequence[str], function: Callable[..., Any], value: Any) -> Any:
    """The function of a value on the next worker of the path; the value itself at its end."""
    if not path:
        return value
    return library(key).rpc.rpc_sync(path[0], function, (key, path[1:], value))


def descend(key: str, context_id: int) -> None:
    """A step of descent on this worker's parameter."""
    lib = library(key)
    w = _weight(key)
    gradient = lib.autograd.get_gradients(context_id)[w]
    with lib.no_grad():
        w -= 1e-6 * gradient


def train(key: str, steps: int) -> None:
    """Steps of one trainer against the parameter server."""
    lib = library(key)
    x = lib.tensor(np.ones((8, SIZE)), requires_grad=False)
    for _ in range(steps):
        with lib.autograd.context() as context_id:
            y = lib.rpc.rpc_sync(SERVER, stage, (key, [], x))
            lib.autograd.backward(context_id, [(y * y).sum()])
            lib.rpc.rpc_sync(SERVER, descend, (key, context_id))
