"""How values are kept for the backward pass where a plain reference will not do.

There are three reasons: the user packs saved values (``saved_tensors_hooks``), the value carries
tangents, or its memory is shared with others. All else is a bare reference (``op_node.py``).
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from telegrad.errors import GradientError, SavedValueChanged
from telegrad.tensors.describe import kind_of, way_in
from telegrad.tensors.recording.modes import Mode
from telegrad.tensors.shared import SharedArray, plain
from telegrad.tensors.tensor import Tensor, wrap


class _Packed:
    __slots__ = ("content", "dtype", "name", "shape", "tangents", "unpack")

    def __init__(self, tensor: Tensor, hooks: tuple[Callable[..., Any], ...], name: str) -> None:
        pack, self.unpack = hooks
        self.shape, self.dtype = tensor.shape, tensor.dtype
        self.name = name
        # Hooks see only the value: they might lose its tangents, so these stay here.
        self.tangents = tensor.tangents
        # A copy for the hooks: shared memory may change before they return it.
        array = tensor.array
        self.content = pack(wrap(np.array(array) if type(array) is SharedArray else array))

    def restore(self) -> Tensor:
        value = self.unpack(self.content)
        if not isinstance(value, Tensor):
            raise GradientError(
                f"expected a Tensor from the unpack hook, the value that pack received, got "
                f"{kind_of(value)}; wrap it with {way_in(value)}"
            )
        if value.shape != self.shape or value.dtype != self.dtype:
            raise GradientError(
                f"expected the value that {self.name} saved, of shape {self.shape} and dtype "
                f"{self.dtype}, from the unpack hook, got shape {value.shape} and dtype "
                f"{value.dtype}; unpack must give back the value that pack received"
            )
        return wrap(plain(value.array), None, self.tangents)


class _Watched:
    __slots__ = ("digest", "name", "tensor")

    def __init__(self, tensor: Tensor, name: str) -> None:
        self.tensor = tensor
        self.name = name
        self.digest = _digest(tensor)


def needs_storing(inputs: Sequence[Tensor], mode: Mode) -> bool:
    """Say whether bare references will not do."""
    if mode.pack is not None:
        return True
    return any(x.tangents or type(x.array) is SharedArray for x in inputs)


def stored(tensor: Tensor, mode: Mode, name: str) -> Any:
    """Return the form in which a value of the operation `name` is saved."""
    if mode.pack is not None:
        return _Packed(tensor, mode.pack, name)
    # The map of tangents is shared: only the closing of a level changes one.
    bare = wrap(tensor.array, None, tensor.tangents)
    return _Watched(bare, name) if type(tensor.array) is SharedArray else bare


def stored_result(kept: Any, tensor: Tensor, mode: Mode, name: str) -> Any:
    """Return the form of a result whose tangents became known after it was stored as `kept`."""
    if isinstance(kept, _Packed):
        kept.tangents = tensor.tangents
        return kept
    return stored(tensor, mode, name)


def has_tangents(kept: Any) -> bool:
    """Say whether what ``stored`` kept carries tangents, without unpacking it."""
    return bool((kept.tensor if isinstance(kept, _Watched) else kept).tangents)


def restored(kept: Any) -> Tensor:
    """Return the value that ``stored`` kept."""
    if isinstance(kept, _Packed):
        return kept.restore()
    if isinstance(kept, _Watched):
        if _digest(kept.tensor) != kept.digest:
            raise SavedValueChanged(
                f"a value that {kept.name} saved for the backward pass was changed in place since: "
                "its memory is shared with an array that was written to; pass copy=True to "
                "asarray, or write only after backward"
            )
        return wrap(plain(kept.tensor.array), None, kept.tensor.tangents)
    tensor: Tensor = kept
    return tensor


def _digest(tensor: Tensor) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(plain(tensor.array)).data, digest_size=16).digest()
