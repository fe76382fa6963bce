"""A forked process has no worker: the connections are those of the process it came from."""

import os

import pytest

from telegrad.distributed import LocalCluster, rpc
from telegrad.errors import NotInitialized

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
