"""A cluster for tests of the stand-ins."""

import pytest

from telegrad.torch import rpc as rpc


@pytest.fixture
def alone(tmp_path):
    """A cluster of one worker, which calls itself as it would others."""
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{tmp_path}/meeting")
    rpc.init_rpc("alone", rank=0, world_size=1, rpc_backend_options=options)
    yield
    rpc.shutdown()
