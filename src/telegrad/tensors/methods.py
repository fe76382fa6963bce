"""The methods of a Tensor that are public functions by another spelling: ``x.sum()`` is ``sum(x)``."""

from typing import TYPE_CHECKING, Any

import numpy as np

from telegrad.errors import ShapeError
from telegrad.tensors.lent import lent

if TYPE_CHECKING:
    from telegrad.tensors.tensor import Tensor

__all__ = ["Methods"]


class Methods:
    """Mixed into Tensor, which see."""

    __slots__ = ()

    def sum(self, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> "Tensor":
        """The sum over some axes, or over all of them."""
        return lent.namespace.sum(self, axis=axis, dtype=dtype, keepdims=keepdims)  # type: ignore[no-any-return]

    def mean(self, axis: Any = None, *, keepdims: bool = False) -> "Tensor":
        """The average over some axes, or over all of them."""
        return lent.namespace.mean(self, axis=axis, keepdims=keepdims)  # type: ignore[no-any-return]

    def max(self, axis: Any = None, *, keepdims: bool = False) -> "Tensor":
        """The largest element over some axes, or over all of them."""
        return lent.namespace.max(self, axis=axis, keepdims=keepdims)  # type: ignore[no-any-return]

    def min(self, axis: Any = None, *, keepdims: bool = False) -> "Tensor":
        """The smallest element over some axes, or over all of them."""
        return lent.namespace.min(self, axis=axis, keepdims=keepdims)  # type: ignore[no-any-return]

    def reshape(self, *shape: Any) -> "Tensor":
        """The same elements in another shape, given as a tuple or as several numbers."""
        return lent.namespace.reshape(self, _shape(shape))  # type: ignore[no-any-return]

    def flatten(self) -> "Tensor":
        """All elements on one axis."""
        return lent.namespace.reshape(self, (-1,))  # type: ignore[no-any-return]

    @property
    def T(self: Any) -> "Tensor":
        """The transposed matrix; only for two axes, see ``mT``."""
        if self.ndim != 2:
            raise ShapeError(
                f"expected a matrix for .T, got shape {self.shape}; use .mT for stacks of matrices "
                "or permute_dims for other orders"
            )
        return lent.namespace.matrix_transpose(self)  # type: ignore[no-any-return]

    @property
    def mT(self) -> "Tensor":
        """The last two axes exchanged."""
        return lent.namespace.matrix_transpose(self)  # type: ignore[no-any-return]

    def clone(self) -> "Tensor":
        """A copy in memory of its own, with the same history."""
        return lent.namespace.clone(self)  # type: ignore[no-any-return]

    def to(self: Any, *where: Any, dtype: Any = None, device: Any = None) -> "Tensor":
        """This tensor with another dtype or on another device; itself where nothing changes."""
        for each in where:
            if _is_dtype(each):
                dtype = each
            else:
                device = each
        result = self
        if dtype is not None and np.dtype(dtype) != self.dtype:
            result = lent.namespace.astype(result, dtype)
        if device is not None:
            result = lent.namespace.to_device(result, device)
        return result  # type: ignore[no-any-return]

    def to_device(self, device: Any, /, *, stream: Any = None) -> "Tensor":
        """This tensor on another device."""
        return lent.namespace.to_device(self, device)  # type: ignore[no-any-return]


def _shape(shape: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape


def _is_dtype(value: Any) -> bool:
    if isinstance(value, str) and value == "cpu":
        return False
    try:
        np.dtype(value)
    except TypeError:
        return False
    return True
