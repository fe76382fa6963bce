"""Python numbers as 0-d arrays of another array's dtype, cached.

NumPy takes 0.57 µs for array * Python float and 0.29 µs for array * 0-d array, so the 0-d arrays of
recent numbers are kept: for floating arrays and real numbers only, where the standard's promotion
rules give the result the array's dtype.
"""

import math
from typing import Any

import numpy as np

_LIMIT = 1024
"""How many numbers are kept; then all are forgotten."""
_kept: dict[tuple[float | str, Any], Any] = {}


def scalar_like(number: Any, array: Any) -> Any:
    """Return a real `number` in a form that combines with `array` as it would itself."""
    dtype = array.dtype
    key: tuple[Any, Any] = (number, dtype)
    found = _kept.get(key)
    if found is not None:
        return found
    if type(array) is not np.ndarray or dtype.kind != "f":
        return number
    if type(number) not in (int, float) or number != number:
        return number
    if not number:
        # 0.0 == -0.0, so a zero is kept under its sign.
        key = ("0" if math.copysign(1.0, number) > 0 else "-0", dtype)
        found = _kept.get(key)
        if found is not None:
            return found
    value = np.asarray(number, dtype=dtype)
    value.flags.writeable = False
    if len(_kept) >= _LIMIT:
        _kept.clear()
    _kept[key] = value
    return value
