"""What tests on a CUDA device need: the mark, and CuPy, which serves telegrad's arrays there."""

import pytest

__all__ = ["CUDA", "cupy", "on_a_gpu"]

CUDA = "cuda:0"
cupy = pytest.importorskip("cupy", reason="needs CuPy, which serves arrays of a CUDA device")


def _has_device() -> bool:
    try:
        return cupy.cuda.runtime.getDeviceCount() > 0
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


on_a_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not _has_device(), reason="needs a CUDA device"),
]
