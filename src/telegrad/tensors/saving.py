"""How values are kept for the backward pass where a plain reference will not do.

Three reasons: the user packs saved values (``saved_tensors_hooks``), the value carries tangents, or
its memory is shared with others. Everything else is saved as a bare reference (``recorded.py``).
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from telegrad.errors import GradientError, SavedValueChanged
from telegrad.tensors.levels import Tangents
from telegrad.tensors.modes import Mode
from telegrad.tensors.shared import SharedArray, plain
from telegrad.tensors.tensor import Tensor, wrap

__all__ = ["restored", "restorer", "stored"]


class _Packed:
    __slots__ = ("content", "unpack")

    def __init__(self, content: Any, unpack: Callable[[Any], Any]) -> None:
        self.content = content
        self.unpack = unpack


class _Watched:
    __slots__ = ("digest", "name", "tensor")

    def __init__(self, tensor: Tensor, name: str) -> None:
        self.tensor = tensor
        self.name = name
        self.digest = _digest(tensor)


def restorer(inputs: Sequence[Tensor], mode: Mode) -> Callable[[Any], Tensor] | None:
    """How to restore what ``stored`` kept, or None where bare references will do."""
    if mode.pack is not None:
        return restored
    if any(x.tangents or type(x.array) is SharedArray for x in inputs):
        return restored
    return None


def stored(tensor: Tensor, mode: Mode, name: str) -> Any:
    """The form in which a value of the operation `name` is saved."""
    bare = wrap(tensor.array, None, Tangents(tensor.tangents) if tensor.tangents else None)
    if mode.pack is not None:
        pack, unpack = mode.pack
        bare.array = plain(bare.array)
        return _Packed(pack(bare), unpack)
    if type(tensor.array) is SharedArray:
        return _Watched(bare, name)
    return bare


def restored(kept: Any) -> Tensor:
    """The value that ``stored`` kept."""
    if isinstance(kept, _Packed):
        value = kept.unpack(kept.content)
        if isinstance(value, np.ndarray):
            value = wrap(value)
        if not isinstance(value, Tensor):
            raise GradientError(
                f"expected a Tensor from the unpack hook, got {type(value).__name__}; unpack must "
                "give back the value that pack received"
            )
        return value
    if isinstance(kept, _Watched):
        if _digest(kept.tensor) != kept.digest:
            raise SavedValueChanged(
                f"a value that {kept.name} saved for the backward pass was changed in place since: "
                "its memory is shared with an array that was written to; pass copy=True to asarray, "
                "or write only after backward"
            )
        return wrap(plain(kept.tensor.array), None, kept.tensor.tangents)
    tensor: Tensor = kept
    return tensor


def _digest(tensor: Tensor) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(plain(tensor.array)).data, digest_size=16).digest()
