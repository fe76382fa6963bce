"""A Tensor as text: value, dtype where it is not obvious, and how it is differentiated."""

from typing import Any

import numpy as np

from telegrad.arrays.host import in_host_memory
from telegrad.errors import DTypeError

_OBVIOUS = (np.dtype("float32"), np.dtype("int64"), np.dtype("bool"))


def tensor_text(tensor: Any) -> str:
    """Return ``tensor([1., 2.], dtype=float64, grad_fn=<SinBackward>)``."""
    array = in_host_memory(tensor.array)
    value = np.array2string(array, separator=", ", prefix="tensor(", precision=4, threshold=1000)
    parts = [value]
    if array.size == 0 and array.shape != (0,):
        parts.append(f"shape={array.shape}")
    if tensor.dtype not in _OBVIOUS:
        parts.append(f"dtype={tensor.dtype}")
    if str(tensor.device) != "cpu":
        parts.append(f"device={tensor.device!s}")
    if tensor.grad_fn is not None:
        parts.append(f"grad_fn=<{tensor.grad_fn.name()}>")
    elif tensor.requires_grad:
        parts.append("requires_grad=True")
    if tensor.is_dual:
        parts.append(f"tangents={len(tensor.tangents)}")
    return f"tensor({', '.join(parts)})"


def formatted(tensor: Any, how: str) -> str:
    """Return ``f"{loss:.3f}"`` of a 0-d tensor, as PyTorch does; others take no format."""
    if not tensor.ndim:
        return format(tensor.item(), how)
    if how:
        raise DTypeError(
            f"expected a 0-d tensor for the format {how!r}, got shape {tensor.shape}; reduce it "
            "first, or write it without a format"
        )
    return str(tensor)
