"""The processes of a stage: this one, and others that are started, killed and started again.

`telegrad.rpc` over Unix sockets, over TCP on loopback, or over TLS between network namespaces,
where all meet at this process, rank 0; or, over any of them, in an open world that meets in a
directory: there another is rank 0, and is killed like the rest.
"""

import datetime
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.distributed.passes.test_random_programs import WORKERS
from tests.soak.network import Network
from tests.soak.worker import join, prepare

from telegrad.distributed import rpc
from telegrad.errors import PeerError, UnknownWorker
from telegrad.rpc.security.certificates import mint
from telegrad.rpc.security.keys import ClusterKey

__all__ = ["ME", "OTHERS", "Cluster"]

ROOT = Path(__file__).parents[2]
ME, *OTHERS = WORKERS
_PATIENCE = 90.0
"""Seconds in which a worker that was started must be there, however busy the machine is."""
_COULD_NOT_JOIN = 3


class Cluster:
    """Four workers, of which this process is the first."""

    def __init__(self, transport: str, directory: Path) -> None:
        self.is_open = transport.startswith("board")
        wire = transport.removeprefix("board").removeprefix("-") or "unix"
        self.network = Network(list(WORKERS)) if wire == "tls" else None
        self._log = (directory / "workers.log").open("a")
        self._environment = self._settings(wire, directory)
        os.environ.update(self._environment | self._own(ME, directory))
        self._directory = directory
        if self.network is not None:
            self.network.enter(ME)
        self.processes = {name: self._launch(name) for name in OTHERS}
        prepare()
        join()
        # Nobody waits for the others in an open world.
        missing = [name for name in OTHERS if self.is_open and not self.wait_for(name)]
        assert not missing, f"{missing} never came"

    def rank(self, name: str) -> int:
        """Return a worker's rank; in an open world this process has the last."""
        return (WORKERS.index(name) - self.is_open) % len(WORKERS)

    def _settings(self, wire: str, directory: Path) -> dict[str, str]:
        if self.network is None:
            host = "127.0.0.1"
            ClusterKey.fresh().save(directory / "key")
        else:
            host = self.network.host(ME)
            mint(directory / "cluster", WORKERS, now=datetime.datetime.now(datetime.UTC))
        settings = {"TELEGRAD_SOAK_UNIX": str(int(wire == "unix"))}
        if self.is_open:
            return settings | {"TELEGRAD_MEETING": str(directory / "meeting")}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        return settings | {
            "MASTER_ADDR": host,
            "MASTER_PORT": str(port),
            "WORLD_SIZE": str(len(WORKERS)),
        }

    def _own(self, name: str, directory: Path) -> dict[str, str]:
        own = {"RANK": str(self.rank(name)), "TELEGRAD_WORKER_NAME": name}
        if self.network is None:
            return own | {"TELEGRAD_KEY_FILE": str(directory / "key")}
        return own | {
            "TELEGRAD_CREDENTIALS": str(directory / "cluster" / name),
            # Nobody is dialled to meet in a directory, which would show the way out.
            "TELEGRAD_SOAK_HOST": self.network.host(name),
        }

    def _launch(self, name: str) -> subprocess.Popen:
        before = [] if self.network is None else self.network.command(name)
        return subprocess.Popen(
            [*before, sys.executable, "-m", "tests.soak.worker"],
            env={**os.environ, **self._environment, **self._own(name, self._directory)},
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._log,
        )

    def signal(self, name: str, number: int) -> None:
        os.kill(self.processes[name].pid, number)

    def kill(self, name: str) -> None:
        # Popen's own: it may have ended, and then its id be another's.
        self.processes[name].kill()
        self.processes[name].communicate()

    def restart(self, name: str) -> bool:
        """Start a worker that has ended; return whether it is there in time."""
        self.processes[name] = self._launch(name)
        return self.wait_for(name)

    def wait_for(self, name: str) -> bool:
        """Return whether the worker's process answers in time; one that can't join tries again."""
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            process = self.processes[name]
            if process.poll() == _COULD_NOT_JOIN:
                process.communicate()
                process = self.processes[name] = self._launch(name)
            try:
                if rpc.rpc_sync(name, os.getpid, timeout=5) == process.pid:
                    return True
            except (PeerError, UnknownWorker):
                time.sleep(0.1)
        return False

    def dump_threads(self) -> None:
        """Have every worker write to the log where its threads are."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGUSR1)

    def close(self) -> list[str]:
        """End all; return what did not end as it should."""
        wrong = []
        for process in self.processes.values():
            process.stdin.close()
        try:
            rpc.shutdown()
        finally:
            for name, process in self.processes.items():
                try:
                    if code := process.wait(60):
                        wrong.append(f"{name} ended with {code}")
                except subprocess.TimeoutExpired:
                    wrong.append(f"{name} did not end")
                    process.kill()
                    process.wait()
            self._log.close()
            if self.network is not None:
                self.network.close()
        return wrong
