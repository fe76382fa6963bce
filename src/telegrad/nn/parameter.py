"""Parameter: a Tensor that a Module owns and an optimiser changes.

It is an ordinary leaf; by its class, a Module that has it as an attribute counts it among its
parameters. What is computed from a Parameter is a plain Tensor.
"""

from typing import Any

import numpy as np

from telegrad.arrays.freed_memory import keep_freed_memory
from telegrad.ops.creation import tensor
from telegrad.tensors import Tensor
from telegrad.tensors.tensor import rebuild
from telegrad.tensors.text import tensor_text


class Parameter(Tensor):
    """A leaf made from data, to be trained unless ``requires_grad=False``.

    Arguments:
        data: What ``tensor`` takes.
        requires_grad: Whether it is to be trained.

    Examples:
        >>> tg.nn.Parameter(tg.ones(2))
        Parameter containing:
        tensor([1., 1.], requires_grad=True)
    """

    __slots__ = ()

    def __init__(self, data: Any, requires_grad: bool = True) -> None:
        # A program with parameters trains, and each step frees memory that the next needs again.
        keep_freed_memory()
        # A Tensor's array may be shared: a later change of either Tensor is made in a copy.
        plain = isinstance(data, Tensor) and type(data.array) is np.ndarray
        self.array = data.array if plain else tensor(data).array
        self.node = None
        self.tangents = None
        self.meta = None
        self.requires_grad_(requires_grad)

    def __repr__(self) -> str:
        return f"Parameter containing:\n{tensor_text(self)}"

    def __reduce__(self) -> Any:
        # Raises for a tensor with a history or tangents.
        return rebuild_parameter, super().__reduce__()[1]


def rebuild_parameter(array: Any, requires_grad: bool, device: str | None = None) -> Parameter:
    """Return a Parameter from a pickle, a copy, or another worker; the array becomes its own."""
    return Parameter(rebuild(array, False, device), requires_grad)
