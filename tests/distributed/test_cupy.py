"""Tensors on CuPy's arrays and remote calls: said to stay, never silently moved."""

import pytest
from tests.distributed.handlers import scale

from telegrad.distributed import LocalCluster, rpc
from telegrad.errors import Unserializable
from telegrad.tensors import wrap

cupy = pytest.importorskip("cupy", reason="needs CuPy, which serves arrays of a CUDA device")


@pytest.mark.gpu
@pytest.mark.processes
def test_a_tensor_on_the_device_is_refused_by_its_place():
    with (
        LocalCluster(["b"]),
        pytest.raises(Unserializable, match=r"args\[0\].*expected a Tensor in host memory"),
    ):
        rpc.rpc_sync("b", scale, (wrap(cupy.ones(2)),))
