"""The numbers of a torch tensor as a raw array, and back: one memory where both sides allow it.

bfloat16, which NumPy lacks, goes as float32. What is on another device than the CPU is copied: a
copy to the CPU waits for the work that is queued on the device's current stream, so the array that
is given out is complete.
"""

from typing import Any

import numpy as np
import torch

from telegrad.interop.torch.devices.staging import to_host

CPU = torch.device("cpu")
is_transformed: Any = torch._C._functorch.is_functorch_wrapped_tensor
"""Whether a tensor is one inside of a function transform (``torch.func``), without own numbers."""


def raw(tensor: torch.Tensor) -> "np.ndarray[Any, Any]":
    """Return the numbers of a tensor, read-only.

    They are in its memory where that is the CPU's and NumPy has the dtype.
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
    # So that nobody takes the memory for its own: PyTorch may have given it to others, too.
    array.setflags(write=False)
    return array


def tensor_over(array: Any, dtype: torch.dtype, device: torch.device = CPU) -> torch.Tensor:
    """Return a tensor over the array's memory; a copy if that is read-only or must be another."""
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
        # The root of most passes. A copy to a device would wait until all before it is done there.
        return torch.full(array.shape, array.item(), dtype=dtype, device=device)
    return made.to(device, dtype)
