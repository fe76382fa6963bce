"""Arrays whose memory others may write to.

``asarray(ndarray, copy=False)`` and ``from_dlpack`` share memory with their maker. Such an
array is marked by its type, so the fast path passes it by. When it is saved for the backward pass,
a digest of its bytes is saved too, and a change in between is an error instead of a wrong gradient.
Where one enters a backward pass as a gradient, it is copied: a gradient is kept, and never shared.
"""

from typing import Any

import numpy as np


class SharedArray(np.ndarray[Any, Any]):
    """A view of memory that telegrad does not own."""


def share(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return `array` marked as shared."""
    return array.view(SharedArray)


def plain(array: Any) -> Any:
    """Return the array to compute with: the mark taken off, nothing copied."""
    return array.view(np.ndarray) if type(array) is SharedArray else array


def shared_as(results: Any, arrays: Any) -> Any:
    """Return the results of a call on `arrays`, some shared: a view of those is, too."""
    sources = [array for array in arrays if type(array) is SharedArray]
    if isinstance(results, tuple):
        return tuple(shared_as(result, sources) for result in results)
    return share(results) if any(np.may_share_memory(results, a) for a in sources) else results


def unshared(tensor: Any) -> Any:
    """Return `tensor`, or a copy of it where its memory is shared."""
    return tensor.clone() if type(tensor.array) is SharedArray else tensor
