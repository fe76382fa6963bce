"""NumPy's masked arrays, which are refused: tensors have no mask."""

from typing import Any

import numpy as np

from telegrad.errors import DTypeError


def refuse_masked(array: Any) -> None:
    """Raise for a masked array in which any element is masked."""
    if not isinstance(array, np.ma.MaskedArray) or not np.ma.is_masked(array):
        return
    count = int(np.ma.getmaskarray(array).sum())
    raise DTypeError(
        f"expected an array without a mask, got a MaskedArray in which {count} of {array.size} "
        "elements are masked, and tensors have no mask; say what stands for them with "
        "array.filled(value), or leave them out with array.compressed()"
    )
