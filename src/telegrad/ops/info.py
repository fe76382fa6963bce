"""What this namespace can do: ``__array_namespace_info__`` of the array API standard."""

from typing import Any

import numpy as np

from telegrad.arrays.devices import CPU, device_names, named
from telegrad.tensors.dtypes import DTYPES


class NamespaceInfo:
    """The inspection functions of the array API standard.

    Examples:
        >>> info = tg.__array_namespace_info__()
        >>> info.default_device()
        'cpu'
        >>> sorted(info.dtypes(kind="real floating"))
        ['float32', 'float64']
    """

    def capabilities(self) -> dict[str, Any]:
        """Say which optional behaviours there are."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """Return the device where tensors are made by default."""
        return "cpu"

    def devices(self) -> list[Any]:
        """Return the devices where tensors can be made."""
        return [*device_names()]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype[Any]]:
        """Return the dtypes of Python numbers and of indices."""
        named(CPU if device is None else device)
        return {
            "real floating": np.dtype("float32"),
            "complex floating": np.dtype("complex64"),
            "integral": np.dtype("int64"),
            "indexing": np.dtype("int64"),
        }

    def dtypes(
        self, *, device: Any = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, np.dtype[Any]]:
        """Return the dtypes by name, all or those of a kind."""
        named(CPU if device is None else device)
        found = {name: np.dtype(name) for name in DTYPES}
        if kind is None:
            return found
        return {name: dtype for name, dtype in found.items() if np.isdtype(dtype, kind)}
