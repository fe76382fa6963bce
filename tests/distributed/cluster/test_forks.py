"""A forked process has no worker: the connections are those of the process it came from."""

import os
import socket
import subprocess
import sys

import pytest

from telegrad.distributed import LocalCluster, rpc
from telegrad.errors import NotInitialized
from telegrad.rpc.security.keys import ClusterKey

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_is_refused_and_its_origin_goes_on():
    with LocalCluster(["b"]):
        assert rpc.rpc_sync("b", abs, (-1,)) == 1
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                rpc.rpc_sync("b", abs, (-2,))
                said = "it was called"
            except NotInitialized as error:
                said = str(error)
            os.write(writing, said.encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            assert "this process was forked from one with a worker" in pipe.read()
        assert rpc.rpc_sync("b", abs, (-3,)) == 3


ENDING = """
import os
import sys

from telegrad.distributed import rpc
from telegrad.errors import NotInitialized

worker = rpc.init_rpc("alone", rank=0, world_size=1)
child = os.fork()
if child == 0:
    try:
        rpc.shutdown()
    except NotInitialized as error:
        print(error)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert os.path.exists(worker.address.removeprefix("unix://")), "its socket is gone"
rpc.shutdown()
"""


def test_a_fork_that_ends_leaves_its_origin_where_others_find_it(tmp_path):
    ClusterKey.fresh().save(tmp_path / "key")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = {"MASTER_PORT": str(port), "TELEGRAD_KEY_FILE": str(tmp_path / "key")}
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ENDING],
        env={**os.environ, **place},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    assert "this process was forked from one with a worker" in ended.stdout
