"""Distributed autograd, telegrad's and PyTorch's, in one run: the same programs, processes, dtypes.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.bench_distributed [--quick]

Single precision, turns round by round; minima (medians), and ratios of minima. Growth rows say how
the time grows with hops, calls, contexts and workers. Workers look for answers before they sleep:
on a machine that does something else at the same time the figures say little.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.distributed_work import SIZE, Library, add, hop, library, stage, train
from benchmarks.measuring import Table
from benchmarks.torch_cluster import TorchCluster

SIDES = {"telegrad": "telegrad", "PyTorch": "torch"}
Work = Callable[[Library], Callable[[], object]]


def whole_step(lib: Library) -> Callable[[], object]:
    """Context, call, backward, gradients, release."""
    x, y = lib.tensor(np.ones((3, 3))), lib.tensor(np.ones((3, 3)))

    def run() -> Any:
        with lib.autograd.context() as context_id:
            z = lib.rpc.rpc_sync("w0", add, (x, y))
            lib.autograd.backward(context_id, [z.sum()])
            return lib.autograd.get_gradients(context_id)

    return run


def hops(count: int) -> Work:
    """A chain of nested calls between two workers, as many as that."""

    def of(lib: Library) -> Callable[[], object]:
        x = lib.tensor(np.ones((3, 3)))
        path = [("w0", "w1")[i % 2] for i in range(count)]

        def run() -> None:
            with lib.autograd.context() as context_id:
                y = lib.rpc.rpc_sync(path[0], hop, (lib.name, path[1:], x))
                lib.autograd.backward(context_id, [y.sum()])

        return run

    return of


def parallel_calls(count: int, workers: int = 1) -> Work:
    """As many calls at once, over as many workers, and one backward pass."""

    def of(lib: Library) -> Callable[[], object]:
        x, y = lib.tensor(np.ones((3, 3))), lib.tensor(np.ones((3, 3)))

        def run() -> None:
            with lib.autograd.context() as context_id:
                futures = [lib.rpc.rpc_async(f"w{i % workers}", add, (x, y)) for i in range(count)]
                total = futures[0].wait()
                for future in futures[1:]:
                    total = total + future.wait()
                lib.autograd.backward(context_id, [total.sum()])

        return run

    return of


def server_steps(steps: int) -> Work:
    """Four trainers at once, `steps` steps each, against one parameter server."""

    def of(lib: Library) -> Callable[[], object]:
        def run() -> None:
            calls = [lib.rpc.rpc_async(f"w{i}", train, (lib.name, steps)) for i in range(1, 5)]
            for call in calls:
                call.wait()

        return run

    return of


def pipeline(lib: Library) -> Callable[[], object]:
    """Four micro-batches through four stages, and one backward pass."""
    x = lib.tensor(np.ones((32, SIZE)))

    def run() -> None:
        with lib.autograd.context() as context_id:
            futures = [
                lib.rpc.rpc_async("w0", stage, (lib.name, ["w1", "w2", "w3"], x)) for _ in range(4)
            ]
            total = futures[0].wait().sum()
            for future in futures[1:]:
                total = total + future.wait().sum()
            lib.autograd.backward(context_id, [total])

    return run


def large(lib: Library) -> Callable[[], object]:
    """Activations of 16 MB there and back, and their gradients."""
    x = lib.tensor(np.ones(1 << 22))

    def run() -> None:
        with lib.autograd.context() as context_id:
            y = lib.rpc.rpc_sync("w0", add, (x, x))
            lib.autograd.backward(context_id, [y.sum()])

    return run


def contexts_in_turn(count: int) -> Work:
    """As many whole steps, one context after the other."""

    def of(lib: Library) -> Callable[[], object]:
        once = whole_step(lib)

        def run() -> None:
            for _ in range(count):
                once()

        return run

    return of


def rows(quick: bool) -> list[tuple[str, Work, float | None, int, int]]:
    """(work, program, goal, rounds, repetitions)."""
    few, fewer = (3, 1) if quick else (15, 7)
    found: list[tuple[str, Work, float | None, int, int]] = [
        ("context, call, backward, gradients, release", whole_step, 8, few, 2 if quick else 50)
    ]
    found += [(f"{n} hops and a backward pass", hops(n), None, few, 5) for n in (2, 5, 9, 17)]
    found += [
        ("100 parallel calls and a backward pass", parallel_calls(100), 12, few, 1),
        ("4 trainers, 10 steps each, one server", server_steps(10), None, few, 1),
        ("4 stages, 4 micro-batches", pipeline, None, few, 2),
        ("activations of 16 MB", large, None, few, 1),
    ]
    found += [(f"growth: {n} calls", parallel_calls(n), None, fewer, 1) for n in (1, 10, 1000)]
    found += [(f"growth: {n} contexts", contexts_in_turn(n), None, fewer, 1) for n in (1, 10, 100)]
    found += [
        (f"growth: a call to each of {n} workers", parallel_calls(n, n), None, fewer, 3)
        for n in (1, 2, 4, 8, 16)
    ]
    return found


def main(arguments: Sequence[str] = ()) -> None:
    """Runs everything, prints a table, writes it with the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, to see that it works")
    options = parser.parse_args(arguments)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    from telegrad.distributed import LocalCluster

    names = [f"w{i}" for i in range(16)]
    table = Table("distributed", tuple(SIDES))
    with TorchCluster(names), LocalCluster(names):
        print(table.header(), flush=True)
        for work, program, goal, rounds, repeat in rows(options.quick):
            sides = {side: program(library(name)) for side, name in SIDES.items()}
            table.add(work, sides, rounds=rounds, repeat=repeat, goal=goal)
    print(f"\nfigures: {table.save()}")


if __name__ == "__main__":
    main(sys.argv[1:])
