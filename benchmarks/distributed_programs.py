"""The programs that bench_distributed measures, the caller's side: written once for all libraries.

A `Program` takes a library and gives what is run again and again. All of it is within the run: the
context, the calls, the backward pass, the gradients, the release.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks.distributed_work import SIZE, add, hop, layers, stage, train
from benchmarks.libraries import Library
from benchmarks.measuring import Work
from benchmarks.transformer import BATCH, FEATURES, LENGTH

__all__ = [
    "Program",
    "contexts_at_once",
    "hops",
    "large",
    "parallel_calls",
    "pipeline",
    "server_steps",
    "transformer",
    "whole_step",
]

Program = Callable[[Library], Work]


def whole_step(lib: Library) -> Work:
    """Context, call, backward, gradients, release."""
    x, y = lib.tensor(np.ones((3, 3))), lib.tensor(np.ones((3, 3)))

    def run() -> Any:
        with lib.autograd.context() as context_id:
            z = lib.rpc.rpc_sync("w0", add, (x, y))
            lib.autograd.backward(context_id, [z.sum()])
            return lib.autograd.get_gradients(context_id)

    return run


def hops(count: int) -> Program:
    """A chain of nested calls between two workers, as many as that."""

    def of(lib: Library) -> Work:
        x = lib.tensor(np.ones((3, 3)))
        path = [("w0", "w1")[i % 2] for i in range(count)]

        def run() -> Any:
            with lib.autograd.context() as context_id:
                y = lib.rpc.rpc_sync(path[0], hop, (lib.key, path[1:], x))
                lib.autograd.backward(context_id, [y.sum()])
                return lib.autograd.get_gradients(context_id)

        return run

    return of


def parallel_calls(count: int, workers: int = 1) -> Program:
    """As many calls at once, over as many workers, and one backward pass."""

    def of(lib: Library) -> Work:
        x, y = lib.tensor(np.ones((3, 3))), lib.tensor(np.ones((3, 3)))

        def run() -> Any:
            with lib.autograd.context() as context_id:
                futures = [lib.rpc.rpc_async(f"w{i % workers}", add, (x, y)) for i in range(count)]
                total = futures[0].wait()
                for future in futures[1:]:
                    total = total + future.wait()
                lib.autograd.backward(context_id, [total.sum()])
                return lib.autograd.get_gradients(context_id)

        return run

    return of


def contexts_at_once(count: int) -> Program:
    """As many threads with a context each: all are open before the first backward pass begins."""

    def of(lib: Library) -> Work:
        pool = ThreadPoolExecutor(count)
        all_open = threading.Barrier(count)
        x, y = lib.tensor(np.ones((3, 3))), lib.tensor(np.ones((3, 3)))

        def one(_: int) -> Any:
            with lib.autograd.context() as context_id:
                z = lib.rpc.rpc_sync("w0", add, (x, y))
                all_open.wait()
                lib.autograd.backward(context_id, [z.sum()])
                return lib.autograd.get_gradients(context_id)

        return lambda: list(pool.map(one, range(count)))

    return of


def server_steps(steps: int) -> Program:
    """Four trainers at once, `steps` steps each, against one parameter server."""

    def of(lib: Library) -> Work:
        def run() -> None:
            calls = [lib.rpc.rpc_async(f"w{i}", train, (lib.key, steps)) for i in range(1, 5)]
            for call in calls:
                call.wait()

        return run

    return of


def pipeline(lib: Library) -> Work:
    """Four micro-batches through four stages, and one backward pass."""
    x = lib.tensor(np.ones((32, SIZE)))
    path = (lib.key, ["w1", "w2", "w3"], x)

    def run() -> Any:
        with lib.autograd.context() as context_id:
            futures = [lib.rpc.rpc_async("w0", stage, path) for _ in range(4)]
            total = futures[0].wait().sum()
            for future in futures[1:]:
                total = total + future.wait().sum()
            lib.autograd.backward(context_id, [total])
            return lib.autograd.get_gradients(context_id)

    return run


def large(lib: Library) -> Work:
    """Activations of 16 MB there and back, and their gradients.

    The loss is a product: the gradient of a plain sum is one number, spread without memory, and
    PyTorch would send no more than that number.
    """
    x = lib.tensor(np.ones(1 << 22))
    by = lib.tensor(np.linspace(0, 1, 1 << 22), requires_grad=False)

    def run() -> Any:
        with lib.autograd.context() as context_id:
            y = lib.rpc.rpc_sync("w0", hop, (lib.key, [], x))
            lib.autograd.backward(context_id, [y @ by])
            return lib.autograd.get_gradients(context_id)

    return run


def transformer(micro_batches: int) -> Program:
    """Two stages of two layers each on two workers: nearly all of it is kernels.

    With several micro-batches the stages can work side by side.
    """

    def of(lib: Library) -> Work:
        shape = (micro_batches, BATCH, LENGTH, FEATURES)
        data = np.random.default_rng(0).standard_normal(shape)
        parts = [(lib.key, ["w1"], lib.tensor(each, requires_grad=False)) for each in data]

        def run() -> None:
            with lib.autograd.context() as context_id:
                futures = [lib.rpc.rpc_async("w0", layers, part) for part in parts]
                losses = [(y * y).mean() for y in (future.wait() for future in futures)]
                lib.autograd.backward(context_id, losses)

        return run

    return of
