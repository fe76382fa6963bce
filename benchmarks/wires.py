"""What a wire costs on one machine: a Unix socket, plain TCP (authenticated records), TLS.

    python -m benchmarks.wires [rounds]

prints, for each, the least microseconds that a small call, and an echo of 1 MB and of 32 MB, took
over all rounds, and the least processor time of both workers together; then what the standard
library's candidates for a record's tag cost alone. docs/security.md has the figures, and what
was chosen by them.
"""

import datetime
import hashlib
import hmac
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.security.certificates import mint
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.security.tls import Credentials
from telegrad.rpc.startup import start_worker
from telegrad.rpc.transport import PrivateDirectory
from telegrad.rpc.worker import Worker

SCHEMES = ("unix", "tcp", "tls")
PAYLOADS = {"small call": (0, 1000), "echo of 1 MB": (1 << 20, 30), "echo of 32 MB": (32 << 20, 3)}


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
    for _ in range(3):
        worker.rpc_sync("b", echo, (argument,))
    busy = worker.rpc_sync("b", spent) + spent()
    began = time.perf_counter()
    for _ in range(count):
        worker.rpc_sync("b", echo, (argument,))
    took = time.perf_counter() - began
    return took / count, (worker.rpc_sync("b", spent) + spent() - busy) / count


def print_wires(rounds: int) -> None:
    best: dict[tuple[str, str], tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as directory, PrivateDirectory.make() as sockets:
        cluster = Path(directory) / "cluster"
        mint(cluster, ["a", "b"], now=datetime.datetime.now(datetime.UTC))
        for _ in range(rounds):
            for scheme in SCHEMES:
                here, there = multiprocessing.Pipe()
                given = (there, scheme, cluster, sockets.path)
                other = multiprocessing.Process(target=serve, args=given)
                other.start()
                incarnation, address = here.recv()
                worker = start("a", 0, scheme, cluster, sockets.path)
                worker.add_peer(WorkerInfo("b", 1, incarnation), address)
                for payload, (nbytes, count) in PAYLOADS.items():
                    argument = np.zeros(nbytes // 8) if nbytes else None
                    now = measure(worker, count, argument)
                    before = best.get((scheme, payload), now)
                    best[scheme, payload] = (min(now[0], before[0]), min(now[1], before[1]))
                worker.close()
                here.send(None)
                other.join()
    for payload in PAYLOADS:
        for scheme in SCHEMES:
            took, busy = best[scheme, payload]
            print(
                f"{payload:14} {scheme:5} {took * 1e6:9.1f} µs, {busy * 1e6:9.1f} µs of processor"
            )


def print_tags() -> None:
    key = ClusterKey.fresh().derive("a benchmark", b"")
    keyed, blake = hmac.new(key, digestmod="sha256"), hashlib.blake2b(key=key, digest_size=16)

    def copied(base: "hmac.HMAC | hashlib.blake2b", data: bytes) -> bytes:
        mac = base.copy()
        mac.update(data)
        return mac.digest()

    ways: dict[str, Callable[[bytes], bytes]] = {
        "hmac.digest, SHA-256": lambda data: hmac.digest(key, data, "sha256"),
        "HMAC-SHA256, a copy": lambda data: copied(keyed, data),
        "BLAKE2b, a copy": lambda data: copied(blake, data),
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
    print_wires(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
    print_tags()
