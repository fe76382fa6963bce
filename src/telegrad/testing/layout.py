"""Several arrays as one real vector, and back.

A complex number counts as two real ones. In those coordinates, the gradient by PyTorch's convention
is the transposed real Jacobian times the cotangent, for holomorphic functions and all others. So
the code that compares derivatives need not know about complex numbers.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]


def differentiable(array: Any) -> bool:
    """Say whether values of this dtype carry derivatives."""
    return bool(array.dtype.kind in "fc")


class Layout:
    """The shapes and dtypes of some arrays, and so their places in a real vector."""

    __slots__ = ("_dtypes", "_is_complex", "_shapes")

    def __init__(self, arrays: Sequence[Array]) -> None:
        self._shapes = [array.shape for array in arrays]
        self._dtypes = [array.dtype for array in arrays]
        self._is_complex = [array.dtype.kind == "c" for array in arrays]

    @property
    def size(self) -> int:
        """The length of the vector."""
        return sum(self._lengths())

    @property
    def is_real(self) -> bool:
        """Whether no array is complex."""
        return not any(self._is_complex)

    def _lengths(self) -> list[int]:
        return [
            int(np.prod(shape, dtype=int)) * (2 if two else 1)
            for shape, two in zip(self._shapes, self._is_complex)
        ]

    def flat(self, arrays: Sequence[Array]) -> Array:
        """Return the arrays as one vector of float64."""
        parts = []
        for array, two in zip(arrays, self._is_complex, strict=True):
            whole = np.ascontiguousarray(array, dtype=np.complex128 if two else np.float64)
            parts.append(whole.reshape(-1).view(np.float64))
        return np.concatenate(parts) if parts else np.zeros(0)

    def apart(self, vector: Array) -> list[Array]:
        """Return the arrays in the vector; those in a complex vector are complex."""
        arrays, start = [], 0
        for shape, dtype, length in zip(self._shapes, self._dtypes, self._lengths()):
            part = vector[start : start + length].copy()
            if vector.dtype.kind != "c":
                part = (part.view(np.complex128) if dtype.kind == "c" else part).astype(dtype)
            arrays.append(part.reshape(shape))
            start += length
        return arrays

    def place(self, index: int) -> str:
        """Return the place of a coordinate of the vector in words, such as ``1[0, 2]``."""
        for number, (shape, two, length) in enumerate(
            zip(self._shapes, self._is_complex, self._lengths())
        ):
            if index < length:
                at = np.unravel_index(index // (2 if two else 1), shape)
                name = f"{number}[{', '.join(str(int(i)) for i in at)}]" if shape else str(number)
                return f"the {'imaginary' if index % 2 else 'real'} part of {name}" if two else name
            index -= length
        raise IndexError(index)
