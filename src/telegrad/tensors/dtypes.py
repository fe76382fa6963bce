"""The dtypes that tensors have."""

import math
from typing import Any, Final

import numpy as np

from telegrad.errors import DTypeError

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128"),
)
_KNOWN = {np.dtype(name): np.dtype(name) for name in DTYPES}

_FLOAT32_END: Final = 2.0**128 - 2.0**103
"""From here on, numbers are rounded to infinity."""


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """Return NumPy's own object for a dtype, given as a dtype or by name, that tensors can have.

    `newbyteorder` and pickles make other, equal objects, but the fast paths compare identities.
    """
    if isinstance(dtype, np.dtype) and (known := _KNOWN.get(dtype)) is not None:
        return known
    try:
        found: np.dtype[Any] = np.dtype(dtype).newbyteorder("=")
    except TypeError as error:
        raise DTypeError(f"expected a dtype such as telegrad.float32, got {dtype!r}") from error
    known = _KNOWN.get(found)
    if known is None:
        raise DTypeError(f"expected one of the dtypes {', '.join(DTYPES)}, got {found}")
    return known


def refuse_complex(own: np.dtype[Any], dtype: np.dtype[Any]) -> None:
    """Raise where complex values would become real, and lose their imaginary part."""
    if own.kind == "c" and dtype.kind not in "cb":
        raise DTypeError(
            f"expected a complex dtype for complex values, got {dtype}; take real(x) or abs(x) of "
            "them first"
        )


def fitting(number: Any, dtype: np.dtype[Any]) -> Any:
    """Return a Python number to be stored as `dtype`; raise if the dtype can't hold it.

    Python's integers are left to NumPy, which refuses them in integer dtypes.
    """
    if isinstance(number, np.generic):
        number = number.item()
    if isinstance(number, complex):
        refuse_complex(np.dtype(np.complex128), dtype)
    if dtype.char in "fF" and isinstance(number, (int, float, complex)):
        holds = all(not _FLOAT32_END <= abs(p) < math.inf for p in (number.real, number.imag))
    elif dtype.kind in "iu" and isinstance(number, float):
        limits = np.iinfo(dtype)
        holds = limits.min <= number <= limits.max  # not so for nan, either
    else:
        holds = True
    if not holds:
        raise DTypeError(
            f"expected a number to fill with that {dtype} can hold, got {number!r:.100}; choose a "
            "larger dtype"
        )
    return number
