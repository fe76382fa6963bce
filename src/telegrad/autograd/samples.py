"""A few numbers of an array, by which one that is computed again is told from another.

They are spread over the whole array and cost the same however large it is. Equal programs on equal
numbers differ by roundings at most (some libraries sum in another order when memory lies
otherwise), so as much is allowed. Arrays of other libraries than NumPy are not looked at: that
would wait for their device.
"""

from typing import Any

import numpy as np

Sample = bytes | None

_COUNT = 32


def sample(array: Any) -> Sample:
    """Return up to 32 numbers of the array."""
    if not isinstance(array, np.ndarray):
        return None
    found: Any = array.flat[:: array.size // _COUNT + 1]
    return found.tobytes()  # type: ignore[no-any-return]


def alike(now: Sample, then: Sample, dtype: Any) -> bool:
    """Tell whether two samples of arrays of this dtype and one shape are equal up to roundings."""
    if now == then or now is None or then is None:
        return True
    if np.dtype(dtype).kind not in "fc":
        return False
    x, y = np.frombuffer(now, dtype), np.frombuffer(then, dtype)
    near = float(np.sqrt(np.finfo(dtype).eps))
    with np.errstate(all="ignore"):
        finite = np.abs(y[np.isfinite(y)])
        largest = float(finite.max()) if finite.size else 0.0
        return bool(np.allclose(x, y, rtol=near, atol=near * largest, equal_nan=True))
