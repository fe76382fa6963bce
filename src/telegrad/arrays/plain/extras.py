"""What a backend has beyond the standard: each kernel in plain form, over the standard alone.

Sums of products, convolution, indexing, functions of matrices, pooling, sliding windows, special
functions and activations. Every function takes the backend first; each is a differentiable
primitive too, so rules may use them at any order.
"""

from types import ModuleType
from typing import Any

from telegrad.arrays.plain import (
    contraction,
    convolution,
    indexing,
    matrices,
    pooling,
    sliding,
    special,
)


def kernels_of(*modules: ModuleType) -> dict[str, Any]:
    """Return the kernels of some modules by name: what ``__all__`` of each names."""
    return {name: getattr(module, name) for module in modules for name in module.__all__}


KERNELS = kernels_of(contraction, convolution, indexing, matrices, pooling, sliding, special)
