"""Handing a Tensor's value to others: to Python's numbers, NumPy and other array libraries.

What leaves is a constant. By DLPack, a NumPy array leaves without a copy if nothing else holds its
memory, no saved value in particular; it counts as shared from then on (``shared.py``), since not
every consumer respects the flag that makes it read-only.
"""

import sys
from typing import Any, Final, NoReturn

import numpy as np

from telegrad.arrays import backend_of
from telegrad.arrays.host import in_host_memory
from telegrad.arrays.ownership import IS_LOCKED
from telegrad.errors import DTypeError, GradientError, ShapeError, UsageError
from telegrad.tensors.shared import SharedArray, share


def _count_held(holder: list[Any]) -> int:
    value = holder[0]
    return sys.getrefcount(value)


_HELD: Final = _count_held([object()]) if IS_LOCKED else 0
"""References to a value that a local and its Tensor know: note COUNTS in engine/local.py."""

_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
_READ_ONLY_SINCE = (1, 0)
"""The version of DLPack that can call memory read-only."""


class Exchange:
    """A part of Tensor: conversions to other types."""

    __slots__ = ()

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> NoReturn:
        """Say what to write: PyTorch's own words are "must be Tensor, not Tensor"."""
        name = getattr(func, "__name__", func)
        raise DTypeError(
            f"expected torch tensors as arguments of PyTorch's {name}, got a telegrad Tensor; "
            "convert it with telegrad.torch.to_torch"
        )

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """Return the module whose functions take this tensor: telegrad."""
        if api_version is not None and api_version not in _VERSIONS:
            raise UsageError(
                f"expected one of the versions {', '.join(_VERSIONS)} of the array API standard, "
                f"got {api_version!r}"
            )
        return sys.modules["telegrad"]

    def numpy(self: Any) -> np.ndarray[Any, Any]:
        """Return the value as a NumPy array: a read-only view, or a copy of what is on a device."""
        _refuse_derivatives(self, "NumPy", "detach().numpy()")
        view = in_host_memory(self.array).view()
        view.flags.writeable = False
        return view

    def __array__(self: Any, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array: np.ndarray[Any, Any] = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"expected dtype {array.dtype} without a copy, got {dtype}")
            return array.astype(dtype)
        return array.copy() if copy else array

    def item(self: Any) -> Any:
        """Return the only element as a Python number."""
        if self.size != 1:
            raise ShapeError(f"expected a tensor with one element, got shape {self.shape}")
        return in_host_memory(self.array).item()

    def tolist(self: Any) -> Any:
        """Return the elements as nested Python lists."""
        return in_host_memory(self.array).tolist()

    def __bool__(self: Any) -> bool:
        return bool(self._only_element("bool"))

    def __int__(self: Any) -> int:
        return int(self._only_element("int"))

    def __float__(self: Any) -> float:
        return float(self._only_element("float"))

    def __complex__(self: Any) -> complex:
        return complex(self._only_element("complex"))

    def __index__(self: Any) -> int:
        if self.ndim or self.dtype.kind not in "iu":
            raise DTypeError(
                f"expected a 0-d integer tensor as an index, got shape {self.shape} of {self.dtype}"
            )
        return int(self.array)

    def _only_element(self: Any, kind: str) -> Any:
        if self.ndim:
            raise DTypeError(
                f"expected a 0-d tensor for {kind}(), got shape {self.shape}; use .item() of one "
                "element, tolist() of many, all() and any() for conditions"
            )
        return self.array.item() if hasattr(self.array, "item") else self.array

    def __dlpack__(
        self: Any,
        /,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:
        """Return the value as a DLPack capsule."""
        _refuse_derivatives(self, "DLPack", "detach()")
        array = self.array
        # In arrays of other libraries, a later change could not be detected.
        may_share = isinstance(array, np.ndarray) and (
            type(array) is SharedArray or (array.base is None and sys.getrefcount(array) <= _HELD)
        )
        # Negative strides crash PyTorch, and the process with it.
        may_share = may_share and min(array.strides, default=0) >= 0
        if copy is False and not may_share:
            raise BufferError(
                "expected a NumPy array that runs forwards, in memory that nothing else holds (no "
                "saved value in particular; without Python's lock nobody can tell), to share by "
                "DLPack; leave copy=False out"
            )
        if copy or not may_share:
            view = backend_of(array).asarray(array, copy=True)
        else:
            view = array.view(np.ndarray)
            self.array = share(array)
            if max_version is not None and max_version >= _READ_ONLY_SINCE:
                view.flags.writeable = False
        return view.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device)

    def __dlpack_device__(self: Any, /) -> tuple[Any, int]:
        """Return the kind of device and its number, as DLPack counts them."""
        device: tuple[Any, int] = self.array.__dlpack_device__()
        return device


def _refuse_derivatives(tensor: Any, where: str, instead: str) -> None:
    """Raise where a history or a tangent would be lost."""
    if tensor.node is not None:
        raise GradientError(
            f"expected a tensor that does not require grad for {where}, got one that does; use "
            f"{instead} to leave the graph on purpose"
        )
    if tensor.is_dual:
        raise GradientError(
            f"expected a tensor without tangents for {where}, got one that carries some; use "
            f"{instead} to leave them behind on purpose"
        )
