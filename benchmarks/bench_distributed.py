"""Distributed autograd, telegrad's and PyTorch's, in one run: the same programs, processes, dtypes.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.bench_distributed [--quick]

Single precision; minima (medians), and ratios of minima. Growth rows say how the time grows with
hops, calls, contexts and workers. The libraries take turns, each with its processes alone on the
machine: PyTorch's idle workers look for work some hundred times a second, and ours look for answers
before they sleep, so that whatever else runs shows in the figures.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
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


Row = tuple[str, Work, float | None, int]
"""(work, program, goal, repetitions within a round)."""


def small_world(quick: bool) -> list[Row]:
    """What is measured with five workers beside the caller."""
    found: list[Row] = [
        ("context, call, backward, gradients, release", whole_step, 8, 2 if quick else 50)
    ]
    found += [(f"{n} hops and a backward pass", hops(n), None, 5) for n in (2, 5, 9, 17)]
    found += [
        ("100 parallel calls and a backward pass", parallel_calls(100), 12, 1),
        ("4 trainers, 10 steps each, one server", server_steps(10), None, 1),
        ("4 stages, 4 micro-batches", pipeline, None, 2),
        ("activations of 16 MB", large, None, 1),
    ]
    found += [(f"growth: {n} calls", parallel_calls(n), None, 1) for n in (1, 10, 1000)]
    found += [(f"growth: {n} contexts", contexts_in_turn(n), None, 1) for n in (1, 10, 100)]
    return found


def large_world(quick: bool) -> list[Row]:
    """What is measured with sixteen."""
    return [
        (f"growth: a call to each of {n} workers", parallel_calls(n, n), None, 3)
        for n in (1, 2, 4, 8, 16)
    ]


WORLDS: dict[int, Callable[[bool], list[Row]]] = {5: small_world, 16: large_world}


def measure(side: str, workers: int, quick: bool) -> dict[str, list[float]]:
    """The seconds of each round of each row of a world, on one side."""
    from telegrad.distributed import LocalCluster

    names = [f"w{i}" for i in range(workers)]
    found = {}
    with LocalCluster(names) if side == "telegrad" else TorchCluster(names):
        for work, program, _, repeat in WORLDS[workers](quick):
            run = program(library(SIDES[side]))
            for _ in range(3):
                run()
            times = []
            for _ in range(2 if quick else 10):
                begin = time.perf_counter()
                for _ in range(repeat):
                    run()
                times.append((time.perf_counter() - begin) / repeat)
            found[work] = times
    return found


def measured(side: str, workers: int, quick: bool) -> dict[str, list[float]]:
    """The same in a process of its own, so that nothing of the other side runs meanwhile."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.bench_distributed"]
    command += ["--side", side, "--workers", str(workers), *(["--quick"] if quick else [])]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    answer: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main(arguments: Sequence[str] = ()) -> None:
    """Runs everything, prints a table, writes it with the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, to see that it works")
    parser.add_argument("--side", choices=list(SIDES), help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, choices=list(WORLDS), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    if options.side:
        print(json.dumps(measure(options.side, options.workers, options.quick)), flush=True)
        return
    table = Table("distributed", tuple(SIDES))
    print(table.header(), flush=True)
    for workers, rows in WORLDS.items():
        turns = [
            {side: measured(side, workers, options.quick) for side in SIDES}
            for _ in range(1 if options.quick else 2)
        ]
        for work, _, goal, _ in rows(options.quick):
            times = {side: [t for turn in turns for t in turn[side][work]] for side in SIDES}
            minima = {side: min(found) for side, found in times.items()}
            medians = {side: statistics.median(found) for side, found in times.items()}
            table.add_figures(work, minima, medians, goal=goal)
    print(f"\nfigures: {table.save()}")


if __name__ == "__main__":
    # Under its own name: functions of __main__ would go by value.
    from benchmarks.bench_distributed import main as run_main

    run_main(sys.argv[1:])
