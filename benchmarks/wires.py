"""What a wire costs on one machine: a Unix socket, plain TCP (authenticated records), TLS.

    python -m benchmarks.wires [rounds]

prints, for each, the least microseconds that a small call, and an echo of 1 MB and of 32 MB, took
over all rounds, and the least processor time of both workers together; then what the standard
library's candidates for a record's tag cost alone. docs/security.md has the figures, and what
was chosen by them.
"""

import contextlib
import datetime
import hashlib
import hmac
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.security.certificates import mint
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.security.tls import Credentials
from telegrad.rpc.startup import start_worker
from telegrad.rpc.transport import PrivateDirectory, sealed
from telegrad.rpc.worker import Worker

SCHEMES = ("unix", "tcp", "tls")
# Bytes, and how many calls are measured together: few, so that one round finds a quiet moment.
PAYLOADS = {"small call": (0, 100), "echo of 1 MB": (1 << 20, 5), "echo of 32 MB": (32 << 20, 1)}


def echo(array: np.ndarray | None) -> np.ndarray | None:
    return array


def spent() -> float:
    return time.process_time()


def start(name: str, number: int, scheme: str, cluster: Path, sockets: str) -> Worker:
    credentials = Credentials(cluster / name)
    address = f"unix://{sockets}/{name}.sock" if scheme == "unix" else f"{scheme}://127.0.0.1:0"
    own = credentials if scheme == "tls" else None
    return start_worker(name, number, address, credentials.load_key(), credentials=own)


def serve(pipe: Connection, scheme: str, cluster: Path, sockets: str) -> None:
    worker = start("b", 1, scheme, cluster, sockets)
    pipe.send((worker.info.incarnation, worker.address))
    pipe.recv()
    worker.close()


def measure(worker: Worker, count: int, argument: np.ndarray | None) -> tuple[float, float]:
    """Return the seconds, and the processor's seconds of both sides, that one call took."""
    worker.rpc_sync("b", echo, (argument,))
    busy = worker.rpc_sync("b", spent) + spent()
    began = time.perf_counter()
    for _ in range(count):
        worker.rpc_sync("b", echo, (argument,))
    took = time.perf_counter() - began
    return took / count, (worker.rpc_sync("b", spent) + spent() - busy) / count


def print_wires(rounds: int) -> None:
    with contextlib.ExitStack() as stack:
        cluster = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "cluster"
        mint(cluster, ["a", "b"], now=datetime.datetime.now(datetime.UTC))
        workers = {scheme: stack.enter_context(connected(scheme, cluster)) for scheme in SCHEMES}
        best: dict[tuple[str, str], tuple[float, float]] = {}
        for _ in range(rounds):
            for payload, (nbytes, count) in PAYLOADS.items():
                argument = np.zeros(nbytes // 8) if nbytes else None
                for scheme, worker in workers.items():
                    now = measure(worker, count, argument)
                    before = best.get((payload, scheme), now)
                    best[payload, scheme] = (min(now[0], before[0]), min(now[1], before[1]))
    for (payload, scheme), (took, busy) in sorted(best.items(), key=lambda row: row[0][0][::-1]):
        print(f"{payload:14} {scheme:5} {took * 1e6:9.1f} µs, {busy * 1e6:9.1f} µs of processor")


@contextlib.contextmanager
def connected(scheme: str, cluster: Path) -> Iterator[Worker]:
    """Yield the worker a, which knows b in another process."""
    with PrivateDirectory.make() as sockets:
        here, there = multiprocessing.Pipe()
        other = multiprocessing.Process(target=serve, args=(there, scheme, cluster, sockets.path))
        other.start()
        incarnation, address = here.recv()
        worker = start("a", 0, scheme, cluster, sockets.path)
        worker.add_peer(WorkerInfo("b", 1, incarnation), address)
        try:
            yield worker
        finally:
            worker.close()
            here.send(None)
            other.join()


def print_tags() -> None:
    key = ClusterKey.fresh().derive("a benchmark", b"")
    blake, seal = hashlib.blake2b(key=key, digest_size=16), sealed._Seal(key)

    def copied(data: bytes) -> bytes:
        mac = blake.copy()
        mac.update(data)
        return mac.digest()

    ways: dict[str, Callable[[bytes], bytes]] = {
        "hmac.digest, SHA-256": lambda data: hmac.digest(key, data, "sha256"),
        "HMAC-SHA256, as used": seal.tag,
        "BLAKE2b with a key": copied,
    }
    for size in (150, 64 << 10):
        data = os.urandom(size)
        for name, way in ways.items():
            least = min(_seconds(way, data) for _ in range(200))
            print(f"tag of {size:5} bytes: {name:21} {least * 1e6:6.1f} µs")


def _seconds(way: Callable[[bytes], bytes], data: bytes) -> float:
    began = time.perf_counter()
    for _ in range(10):
        way(data)
    return (time.perf_counter() - began) / 10


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    print_wires(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
    print_tags()
