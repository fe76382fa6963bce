"""Check that a derivative has the shape, dtype and device of the value that it belongs to."""

from typing import Any

import numpy as np

from telegrad.arrays import backend_of
from telegrad.errors import DeviceError, DTypeError, ShapeError


def check_like(value: Any, like: Any, what: str, whose: str = "the primal") -> None:
    """Raise unless a Tensor, called `what`, fits the Tensor `like`, called `whose`."""
    x, y = value.array, like.array
    if type(x) is type(y) is np.ndarray and x.dtype is y.dtype and x.shape == y.shape:
        return
    if value.shape != like.shape:
        raise ShapeError(
            f"expected shape {like.shape}, that of {whose}, for {what}, got {value.shape}; "
            "broadcast_to it first"
        )
    if value.dtype != like.dtype:
        raise DTypeError(
            f"expected dtype {like.dtype}, that of {whose}, for {what}, got {value.dtype}; convert "
            f"it with .to({str(like.dtype)!r})"
        )
    if backend_of(x) is not backend_of(y) or value.device != like.device:
        raise DeviceError(
            f"expected device {like.device} of {backend_of(y).name}, that of {whose}, for {what}, "
            f"got {value.device} of {backend_of(x).name}; move it with .to(device=...)"
        )
