"""Arrays that say they are CuPy's, on a device that is the host's memory: see ``pretended.py``."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import torch

from telegrad.interop.torch.devices import placement

__all__ = ["Array", "pretend_cupy"]


class Array(np.ndarray):
    """NumPy's, which computes as ever."""

    __module__ = "cupy"
    device = SimpleNamespace(id=0)

    @classmethod
    def of(cls, *numbers):
        return np.array(numbers).view(cls)

    def get(self):
        return self.view(np.ndarray)


def pretend_cupy(patch):
    """Have placement take such arrays for what is on the device."""
    patch.setitem(sys.modules, "cupy", ModuleType("cupy"))
    patch.setattr(placement, "can_carry", placement.is_cupy)
    patch.setattr(placement, "as_torch", lambda array: torch.from_numpy(array.view(np.ndarray)))
    patch.setattr(placement, "as_array", lambda tensor, own, frm: tensor.numpy().view(Array))
    patch.setattr(placement, "let_cupy_wait", lambda *args: None)
