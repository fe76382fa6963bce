"""CuPy's arrays as torch tensors, as far as arrays of NumPy's that say they are CuPy's tell."""

from types import SimpleNamespace

import numpy as np
import pytest
from tests.interop.torch.devices.pretended_cupy import Array

from telegrad.interop.torch.devices.cupy_arrays import as_torch


class Second(SimpleNamespace):
    """A device that is not the current one, but in a ``with`` block."""

    is_current = False

    def __enter__(self):
        self.is_current = True

    def __exit__(self, *exc_info):
        self.is_current = False


class OnSecond(Array):
    """An array there, which is copied to whichever device is current."""

    device = Second(id=1)

    def copy(self):
        assert self.device.is_current
        return np.ndarray.copy(self)


@pytest.mark.parametrize("dtype", ["float32", "uint16", "bool"])
def test_what_is_not_dense_is_copied_on_its_own_device(dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype).view(OnSecond)
    found = as_torch(array.T)
    assert found.tolist() == array.T.astype(found.numpy().dtype).tolist()
    assert not OnSecond.device.is_current
    # One that is shares the memory.
    assert as_torch(array).data_ptr() == array.ctypes.data
