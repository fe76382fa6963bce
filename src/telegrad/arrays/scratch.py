"""Scratch memory for kernels, kept by each thread: a fresh large array costs more than using it.

A piece is valid until the same thread asks for the same name again. So a kernel that takes one
calls no code of others before it is done with it, and returns no part of it.
"""

import threading
from typing import Any

import numpy as np

_LARGEST = 1 << 25
"""Bytes; more than that is not kept."""
_local = threading.local()


def scratch(name: str, size: int, dtype: "np.dtype[Any]") -> Any:
    """Return `size` numbers on one axis, with arbitrary contents."""
    if size * dtype.itemsize > _LARGEST:
        return np.empty(size, dtype)
    kept: dict[str, Any] = _local.__dict__
    key = f"{name} {dtype.char}"
    found = kept.get(key)
    if found is None or found.size < size:
        found = kept[key] = np.empty(size, dtype)
    return found[:size]
