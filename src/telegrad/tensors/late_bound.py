"""What modules need from later ones, which bind it here, so that no import goes upwards or around.

``tensor`` binds its class and ``wrap`` for the fast paths, of which its operators are made;
``hooked`` binds how a leaf runs its hooks; ``primitive_call`` binds ``apply`` and ``variant`` for
the fast paths, ``inputs`` binds ``takes`` for the operators; ``telegrad.namespace`` binds the
namespace of public functions (methods call it, rules run on Tensors get it as ``xp``); ``autograd``
binds ``backward``.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from telegrad.graph import Cotangent, NodeHooks

if TYPE_CHECKING:
    from telegrad.tensors.tensor import Tensor


class LateBound:
    """Bound once, while telegrad is imported."""

    __slots__ = (
        "apply",
        "backward",
        "namespace",
        "run_on_node",
        "run_on_value",
        "takes",
        "tensor_type",
        "variant",
        "wrap",
    )

    tensor_type: type["Tensor"]
    wrap: Callable[..., "Tensor"]
    run_on_value: Callable[[NodeHooks, Cotangent], Cotangent]
    run_on_node: Callable[[NodeHooks, Cotangent], Cotangent]
    apply: Callable[..., "Tensor"]
    variant: Callable[..., Any]
    takes: Callable[[Any], bool]
    namespace: Any
    backward: Callable[..., None]


late_bound = LateBound()
