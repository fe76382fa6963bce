"""Workers that are processes started by hand, as on several machines."""

import os
import socket
import subprocess
import sys

import pytest

from telegrad.rpc.security.keys import ClusterKey


@pytest.fixture
def launch(tmp_path):
    """Return a function that starts Python with some arguments as a worker of one cluster.

    Whatever still runs afterwards is ended.
    """
    key = tmp_path / "key"
    ClusterKey.fresh().save(key)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = []

    def start(name, rank, size, *arguments, **extra):
        environment = {
            **os.environ,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "RANK": str(rank),
            "WORLD_SIZE": str(size),
            "TELEGRAD_WORKER_NAME": name,
            "TELEGRAD_KEY_FILE": str(key),
            **extra,
        }
        process = subprocess.Popen(
            [sys.executable, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
