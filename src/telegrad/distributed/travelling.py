"""How a Tensor travels: its raw array, and whether it requires grad.

What a context adds to that (messages, nodes) is in ``recording.py``. Without one, a tensor arrives as
a new leaf with the same ``requires_grad``.
"""

from typing import Any

import numpy as np

from telegrad.rpc.wire import kinds
from telegrad.tensors import LEAF, Tensor, wrap

__all__ = ["register"]


def register() -> None:
    """Makes Tensors known to the serialiser; doing it again changes nothing."""
    kinds.register(Tensor, to_parts, from_parts, tag="telegrad.Tensor")


def to_parts(tensor: Tensor) -> tuple[list[Any], bool]:
    """The raw array and whether it requires grad."""
    return [np.asarray(tensor.array)], tensor.node is not None


def from_parts(parts: list[Any], requires_grad: bool) -> Tensor:
    """A constant, or a new leaf."""
    return wrap(parts[0], LEAF if requires_grad else None)
