"""Moving tensors between devices."""

from typing import Any

from telegrad.errors import DeviceError
from telegrad.tensors import Tensor

__all__ = ["to_device"]


def to_device(x: Tensor, device: Any, /) -> Tensor:
    """`x` on a device; itself where it is there already."""
    if str(device) == str(x.device):
        return x
    raise DeviceError(
        f"expected the device {str(x.device)!r}, got {device!r}: a tensor stays where its array "
        "is, leave this out"
    )
