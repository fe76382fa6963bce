"""Python numbers as 0-d arrays of another array's dtype, remembered.

NumPy takes 0.57 µs for array * Python float and 0.29 µs for array * 0-d array, so the 0-d arrays of
recent numbers are kept. Only for floating arrays and real numbers: there the result's
dtype is the array's, by the standard's promotion rules. Zero is not kept, because 0.0 == -0.0.
"""

from typing import Any

import numpy as np

__all__ = ["scalar_like"]

_LIMIT = 1024
_kept: dict[tuple[float, Any], Any] = {}


def scalar_like(number: Any, array: Any) -> Any:
    """`number` in a form that combines with `array` as the number itself would."""
    dtype = array.dtype
    key = (number, dtype)
    found = _kept.get(key)
    if found is not None:
        return found
    if type(array) is not np.ndarray or dtype.kind != "f":
        return number
    if type(number) not in (int, float) or not number or number != number:
        return number
    value = np.asarray(number, dtype=dtype)
    value.flags.writeable = False
    if len(_kept) >= _LIMIT:
        _kept.clear()
    _kept[key] = value
    return value
