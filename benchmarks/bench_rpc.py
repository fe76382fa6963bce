"""Remote calls, telegrad's and PyTorch's, in one run: two processes on each side.

    python -m benchmarks.bench_rpc [--quick] [--json FILE]

The two take turns, each with the machine to itself: PyTorch's transport polls without pause, so
beside it nothing else could be measured on two cores. Each figure is the best of many short rounds,
one BLAS thread on both sides. Ratios are PyTorch's time over ours.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

# The libraries call these on the other process; they must be importable there.


def noop() -> None:
    """Do nothing."""


def add(x: Any, y: Any) -> Any:
    """Add two arrays in Python."""
    return x + y


def echo(x: Any) -> Any:
    """Give back what came."""
    return x


def bounce_telegrad(depth: int) -> int:
    """Call back and forth, `depth` times."""
    from telegrad.distributed import rpc

    other = "server" if rpc.get_worker_info().name == "client" else "client"
    return 0 if depth == 0 else 1 + rpc.rpc_sync(other, bounce_telegrad, (depth - 1,))


def bounce_torch(depth: int) -> int:
    """Call back and forth, `depth` times."""
    from torch.distributed import rpc

    other = "server" if rpc.get_worker_info().name == "client" else "client"
    return 0 if depth == 0 else 1 + rpc.rpc_sync(other, bounce_torch, (depth - 1,))


_busy = threading.Event()


def be_busy(on: bool) -> None:
    """Start or stop a thread that does nothing but run Python."""

    def spin() -> None:
        while _busy.is_set():
            pass

    if on:
        _busy.set()
        threading.Thread(target=spin, daemon=True).start()
    else:
        _busy.clear()


Measure = dict[str, Callable[[], object]]


def measures(call: Any, call_async: Any, small: Any, large: dict[str, Any], bounce: Any) -> Measure:
    """Return what is measured, with one library's functions and arrays."""

    def in_flight() -> None:
        for future in [call_async("server", add, (small, small + 1)) for _ in range(100)]:
            future.wait()

    def four_threads() -> None:
        def work() -> None:
            for _ in range(25):
                call("server", noop)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    work: Measure = {
        "noop": lambda: call("server", noop),
        "add of two 3x3 arrays": lambda: call("server", add, (small, small + 1)),
        "100 adds in flight": in_flight,
        "100 noops from 4 threads": four_threads,
    }
    for depth in (2, 5, 9, 17):
        work[f"nested to depth {depth}"] = lambda depth=depth: call("server", bounce, (depth,))
    for name, array in large.items():
        work[f"echo of {name}"] = lambda array=array: call("server", echo, (array,))
    return work


SIZES = {"64 KB": 1 << 16, "1 MB": 1 << 20, "16 MB": 1 << 24, "64 MB": 1 << 26}
# PyTorch's server deadlocks when a chain is deeper than its pool: it gets more threads than that.
TORCH_THREADS = 32


def time_of(work: Callable[[], object], seconds: float) -> float:
    """Return the mean time of one call over about that many seconds."""
    began = time.perf_counter()
    work()
    once = time.perf_counter() - began
    repeats = max(1, int(seconds / max(once, 1e-6)))
    began = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - began) / repeats


def start_torch(rank: int, port: int) -> None:
    """Join PyTorch's cluster of two."""
    import torch
    from torch.distributed import rpc

    torch.set_num_threads(1)
    rpc.init_rpc(
        ["client", "server"][rank],
        rank=rank,
        world_size=2,
        rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
            num_worker_threads=TORCH_THREADS, init_method=f"tcp://127.0.0.1:{port}"
        ),
    )


def serve_torch(port: int) -> None:
    """Be PyTorch's server until the client leaves."""
    from torch.distributed import rpc

    start_torch(1, port)
    rpc.shutdown()


def free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def measure_telegrad(rounds: int, seconds: float) -> dict[str, float]:
    """Return our figures in microseconds."""
    from telegrad.distributed import LocalCluster, rpc

    with LocalCluster(["server"], me="client"):
        small = np.arange(9.0).reshape(3, 3)
        arrays = {name: np.ones(size // 8) for name, size in SIZES.items()}
        work = measures(rpc.rpc_sync, rpc.rpc_async, small, arrays, bounce_telegrad)
        return _times(work, rpc.rpc_sync, rounds, seconds)


def measure_torch(rounds: int, seconds: float) -> dict[str, float]:
    """Return PyTorch's figures in microseconds."""
    import torch
    from torch.distributed import rpc

    port = free_port()
    command = [sys.executable, "-m", "benchmarks.bench_rpc", "--serve-torch", str(port)]
    server = subprocess.Popen(command)
    start_torch(0, port)
    try:
        small = torch.arange(9.0, dtype=torch.float64).reshape(3, 3)
        tensors = {name: torch.ones(size // 8, dtype=torch.float64) for name, size in SIZES.items()}
        work = measures(rpc.rpc_sync, rpc.rpc_async, small, tensors, bounce_torch)
        return _times(work, rpc.rpc_sync, rounds, seconds)
    finally:
        rpc.shutdown()
        server.wait(30)


def _times(work: Measure, call: Any, rounds: int, seconds: float) -> dict[str, float]:
    times = {
        name: 1e6 * min(time_of(each, seconds) for _ in range(rounds))
        for name, each in work.items()
    }
    call("server", be_busy, (True,))
    times["noop while the server runs Python"] = 1e6 * time_of(work["noop"], 10 * seconds)
    call("server", be_busy, (False,))
    return times


SIDES = {"telegrad": measure_telegrad, "torch": measure_torch}


def run(turns: int, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Measure the two in turns, each with the machine to itself; return a row for each figure."""
    best: dict[str, dict[str, float]] = {side: {} for side in SIDES}
    for _ in range(turns):
        for side, figures in best.items():
            command = [sys.executable, "-m", "benchmarks.bench_rpc", "--side", side]
            command += ["--rounds", str(rounds), "--seconds", str(seconds)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
            for name, value in json.loads(done.stdout.splitlines()[-1]).items():
                figures[name] = min(value, figures.get(name, value))
    return [
        {"work": name, "telegrad": ours, "torch": theirs, "ratio": theirs / ours}
        for name, ours in best["telegrad"].items()
        for theirs in [best["torch"][name]]
    ]


def commit() -> str:
    """Return the commit that is measured."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def main() -> None:
    """Run, print a table, write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round, for tests")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--serve-torch", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=10, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=0.015, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    if arguments.serve_torch:
        serve_torch(arguments.serve_torch)
        return
    if arguments.side:
        print(json.dumps(SIDES[arguments.side](arguments.rounds, arguments.seconds)))
        return
    rows = run(1, 1, 0.01) if arguments.quick else run(3, 15, 0.015)
    print(f"{'µs':38}{'telegrad':>12}{'PyTorch':>12}{'ratio':>9}")
    for row in rows:
        print(f"{row['work']:38}{row['telegrad']:12.1f}{row['torch']:12.1f}{row['ratio']:8.1f}x")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"benchmark": "rpc", "commit": commit(), "rows": rows}, file, indent=1)


if __name__ == "__main__":
    # Under its own name: functions of __main__ would go by value.
    from benchmarks.bench_rpc import main as run_main

    run_main()
