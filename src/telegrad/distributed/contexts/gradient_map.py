"""A context's gradients by leaf: a dict whose KeyError says why a tensor has no gradient.

Invariant: it differs from a dict only in the text of its KeyError, and is sent as a dict.
"""

from typing import Any, NoReturn

from telegrad.tensors import Tensor


class GradientMap(dict[Tensor, Tensor]):
    """The result of ``get_gradients``."""

    __slots__ = ()

    def __missing__(self, key: Any) -> NoReturn:
        raise KeyError(_why_missing(key))

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def _why_missing(key: Any) -> str:
    # PyTorch's tensors have the same attributes.
    if not hasattr(key, "requires_grad"):
        return (
            f"expected a tensor as the key of a gradient, got {type(key).__name__}; the gradient "
            "of one that an RRef refers to is had on its owner, or by grad(context_id, outputs, "
            "inputs)"
        )
    what = f"no gradient for the tensor of shape {tuple(key.shape)}"
    if not key.requires_grad:
        return (
            f"{what}: it does not require grad; make it with requires_grad=True, before the calls"
        )
    if not key.is_leaf:
        return (
            f"{what}: it was computed, and only leaves have one here; ask for it with "
            "grad(context_id, outputs, inputs)"
        )
    return (
        f"{what}: no backward pass of this context has reached it on this worker. A call is "
        "recorded if it is made inside of `with context()`, on the thread that entered it; sent "
        "elsewhere, it arrives as another leaf"
    )
