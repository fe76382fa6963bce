"""How a Tensor shows itself to other array libraries: the standard's namespace, and DLPack.

What leaves by DLPack is a constant. It leaves without a copy if nothing else holds its memory, no
saved value in particular, and counts as shared from then on (``shared.py``), since not every
consumer keeps to the flag that calls it read-only.
"""

import sys
from typing import Any

import numpy as np

from telegrad.arrays.ownership import HELD
from telegrad.errors import GradientError, UsageError
from telegrad.tensors.shared import SharedArray, share

__all__ = ["Exchange"]

_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
_READ_ONLY_SINCE = (1, 0)
"""The version of DLPack that can call memory read-only."""


class Exchange:
    """Mixed into Tensor, which see."""

    __slots__ = ()

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """The module whose functions take this tensor: telegrad."""
        if api_version is not None and api_version not in _VERSIONS:
            raise UsageError(
                f"expected one of the versions {', '.join(_VERSIONS)} of the array API standard, "
                f"got {api_version!r}"
            )
        return sys.modules["telegrad"]

    def __dlpack__(
        self: Any,
        /,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:
        """The value as a DLPack capsule."""
        if self.node is not None:
            raise GradientError(
                "expected a tensor that does not require grad for DLPack, got one that does; use "
                "detach() to leave the graph on purpose"
            )
        if self.is_dual:
            raise GradientError(
                "expected a tensor without tangents for DLPack, got one that carries some; use "
                "detach() to leave them behind on purpose"
            )
        array = self.array
        if not isinstance(array, np.ndarray):
            return array.__dlpack__(
                stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
            )
        is_alone = array.base is None and sys.getrefcount(array) <= HELD
        may_share = is_alone or type(array) is SharedArray
        # PyTorch ends the process when it is given negative strides.
        if copy or (copy is None and (not may_share or min(array.strides, default=0) < 0)):
            view = array.copy()
        else:
            view = array.view(np.ndarray)
            self.array = share(array)
            if max_version is not None and max_version >= _READ_ONLY_SINCE:
                view.flags.writeable = False
        return view.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device)

    def __dlpack_device__(self: Any, /) -> tuple[Any, int]:
        """The kind of device and its number, as DLPack counts them."""
        device: tuple[Any, int] = self.array.__dlpack_device__()
        return device
