"""What Tensor needs of later modules, which bind it here: nothing imports upwards or in a circle.

``primitive_call`` binds ``apply`` and ``variant`` for the fast paths, ``inputs`` ``takes`` for
the operators; ``telegrad.namespace`` binds the namespace of public functions (``x.sum()`` is
``ops.sum(x)``; rules run on Tensors get it as ``xp``); ``autograd`` binds ``backward``.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from telegrad.tensors.tensor import Tensor

__all__ = ["LateBound", "late_bound"]


class LateBound:
    """Bound once, while telegrad is imported."""

    __slots__ = ("apply", "backward", "namespace", "takes", "variant")

    apply: Callable[..., "Tensor"]
    variant: Callable[..., Any]
    takes: Callable[[Any], bool]
    namespace: Any
    backward: Callable[..., None]


late_bound = LateBound()
