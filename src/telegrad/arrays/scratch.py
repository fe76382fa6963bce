"""Memory for work in between, kept by each thread: a fresh large array costs more than its use.

What is lent is valid until the same thread asks for the same name again; so a kernel that takes it
calls nobody else's code before it is done, and gives none of it away.
"""

import threading
from typing import Any

import numpy as np

_LARGEST = 1 << 25
"""Bytes; more than that is not kept."""
_local = threading.local()


def scratch(name: str, size: int, dtype: "np.dtype[Any]") -> Any:
    """Return `size` numbers on one axis, with anything in them."""
    if size * dtype.itemsize > _LARGEST:
        return np.empty(size, dtype)
    kept: dict[str, Any] = _local.__dict__
    key = f"{name} {dtype.char}"
    found = kept.get(key)
    if found is None or found.size < size:
        found = kept[key] = np.empty(size, dtype)
    return found[:size]
