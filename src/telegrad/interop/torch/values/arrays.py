"""Convert a torch tensor to a NumPy array and back, sharing memory where both sides allow it.

bfloat16, which NumPy lacks, becomes float32. A tensor on another device is copied to the CPU; the
copy waits for the work that is queued on the device's current stream, so the array is complete.
"""

from typing import Any

import numpy as np
import torch

from telegrad.interop.torch.devices.staging import to_host

CPU = torch.device("cpu")
is_transformed: Any = torch._C._functorch.is_functorch_wrapped_tensor
"""Tells whether a tensor is a wrapper inside a function transform (``torch.func``), without data
of its own."""


def raw(tensor: torch.Tensor) -> "np.ndarray[Any, Any]":
    """Return the values of a tensor as a read-only array.

    It shares the tensor's memory if that is on the CPU and NumPy has the dtype.
    """
    plain = tensor.data if tensor.requires_grad else tensor
    array: np.ndarray[Any, Any]
    try:
        array = plain.numpy()
    except (TypeError, RuntimeError):
        # On another device, of another layout or dtype, or lazily conjugated, negated or zero.
        if plain.layout is not torch.strided:
            plain = plain.to_dense()
        plain = to_host(plain.clone() if plain._is_zerotensor() else plain)
        plain = plain.resolve_conj().resolve_neg()
        array = (plain.float() if plain.dtype is torch.bfloat16 else plain).numpy()
    # Read-only, so that nobody adds to it in place: PyTorch may have given the memory to others.
    array.setflags(write=False)
    return array


def tensor_over(array: Any, dtype: torch.dtype, device: torch.device = CPU) -> torch.Tensor:
    """Return a tensor over the array's memory, or over a copy if it can't be shared."""
    if type(array) is not np.ndarray:
        array = np.asarray(array).view(np.ndarray)
    if not array.flags.writeable:
        array = array.copy()
    try:
        made = torch.from_numpy(array)
    except ValueError:
        # Negative strides, which PyTorch lacks.
        made = torch.from_numpy(array.copy())
    if made.dtype is dtype and device is CPU:
        return made
    if array.size == 1:
        # Most passes start with one number. A copy to a device would wait for all work before it.
        return torch.full(array.shape, array.item(), dtype=dtype, device=device)
    return made.to(device, dtype)
