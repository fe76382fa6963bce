"""What later modules lend to Tensor, so that nothing here imports upwards or in a circle.

``calling`` lends ``apply`` and ``variant`` to the hot paths, ``inputs`` lends ``takes`` to the
operators; ``telegrad.namespace`` lends the namespace of public functions (``x.sum()`` is
``ops.sum(x)``; rules run on Tensors get it as ``xp``); ``autograd`` lends ``backward``.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from telegrad.tensors.tensor import Tensor

__all__ = ["Lent", "lent"]


class Lent:
    """Filled once, while telegrad is imported."""

    __slots__ = ("apply", "backward", "namespace", "takes", "variant")

    apply: Callable[..., "Tensor"]
    variant: Callable[..., Any]
    takes: Callable[[Any], bool]
    namespace: Any
    backward: Callable[..., None]


lent = Lent()
