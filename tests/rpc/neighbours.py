"""Several workers over real sockets in one process."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from telegrad.rpc.options import Options
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.startup import start_worker
from telegrad.rpc.transport import PrivateDirectory
from telegrad.rpc.transport.address import parse_addresses
from telegrad.rpc.worker import Worker

__all__ = ["directory_of", "eventually", "neighbours", "stop"]


@contextlib.contextmanager
def neighbours(
    *names: str,
    options: Options | None = None,
    tcp: bool = False,
    quiet: Sequence[str] = (),
) -> Iterator[list]:
    """Yield workers that know each other; those that are `quiet` listen nowhere."""
    key = ClusterKey.fresh()
    workers: list[Worker] = []
    with PrivateDirectory.make() as directory:
        try:
            for number, name in enumerate(names):
                address = "tcp://127.0.0.1:0" if tcp else directory.socket_address(name)
                chosen = replace(options or Options(), listen=name not in quiet)
                workers.append(start_worker(name, number, address, key, chosen))
            for worker in workers:
                for other in workers:
                    if other is not worker:
                        worker.add_peer(other.info, other.address)
            yield workers
        finally:
            for worker in workers:
                worker.close()


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Say whether the condition comes true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


def stop(process: int) -> None:
    """Stop a process of ours; on a busy machine its threads run on for a while after the signal."""
    os.kill(process, signal.SIGSTOP)
    os.waitid(os.P_PID, process, os.WSTOPPED | os.WNOWAIT)


def directory_of(worker: Worker) -> str:
    """Return the directory that its socket lies in."""
    return os.path.dirname(parse_addresses(worker.address)[0].path)
