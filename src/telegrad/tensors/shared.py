"""Arrays whose memory others may write to.

``asarray(ndarray, copy=False)`` and ``from_dlpack`` share memory with the array that they are
given. Such an array is marked by its type, so that the fast path leaves it alone. When it is saved
for the backward pass, a digest of its bytes is saved too, and a change in between is an error, not
a wrong gradient. One that enters a backward pass as a gradient is copied, since gradients are kept.
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
    """Return the results of a call on `arrays`, marked where they are views of shared ones."""
    sources = [array for array in arrays if type(array) is SharedArray]
    if isinstance(results, tuple):
        return tuple(shared_as(result, sources) for result in results)
    return share(results) if any(np.may_share_memory(results, a) for a in sources) else results


def unshared(tensor: Any) -> Any:
    """Return `tensor`, or a copy of it where its memory is shared."""
    return tensor.clone() if type(tensor.array) is SharedArray else tensor
