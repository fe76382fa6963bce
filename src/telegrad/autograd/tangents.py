"""Check that a tangent has its primal's shape, dtype and device."""

import numpy as np

from telegrad.arrays import backend_of
from telegrad.errors import DeviceError, DTypeError, ShapeError
from telegrad.tensors import Tensor


def check_tangent(primal: Tensor, tangent: Tensor, name: str) -> None:
    """Raise if the tangent has another shape, dtype or device than the primal."""
    x, t = primal.array, tangent.array
    if type(x) is type(t) is np.ndarray and x.dtype is t.dtype and x.shape == t.shape:
        return
    if tangent.shape != primal.shape:
        raise ShapeError(
            f"expected shape {primal.shape}, that of the primal, for {name}, got {tangent.shape}; "
            "broadcast_to it first"
        )
    if tangent.dtype != primal.dtype:
        raise DTypeError(
            f"expected dtype {primal.dtype}, that of the primal, for {name}, got {tangent.dtype}; "
            f"convert it with .to({str(primal.dtype)!r})"
        )
    if backend_of(tangent.array) is not backend_of(primal.array) or tangent.device != primal.device:
        raise DeviceError(
            f"expected device {primal.device} of {backend_of(primal.array).name}, that of the "
            f"primal, for {name}, got {tangent.device} of {backend_of(tangent.array).name}; move "
            "it with .to(device=...)"
        )
