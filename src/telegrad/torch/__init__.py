"""Use telegrad with PyTorch: convert tensors, and replace modules of ``torch.distributed``.

``telegrad.torch.rpc``, ``telegrad.torch.autograd``, ``telegrad.torch.optim`` and
``telegrad.torch.nn`` replace the modules of the same names in ``torch.distributed``: a program
changes its imports and nothing else. They import PyTorch. This package alone does not until a
tensor is converted (``telegrad.interop.torch``).
"""

from typing import Any

from telegrad.tensors import Tensor

__all__ = ["from_torch", "to_torch"]


def from_torch(tensor: Any) -> Tensor:
    """Convert a torch tensor to a Tensor that shares its memory, differentiably to any order.

    Neither side may write into the memory while a backward pass still needs it. A CUDA tensor is
    copied instead, to a CuPy array on the same device.

    Examples:
        >>> import torch
        >>> from telegrad.torch import from_torch
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> (from_torch(x) ** 3).sum().backward()
        >>> x.grad
        tensor([ 3., 12.])
    """
    _make_known()
    from telegrad.interop.torch.bridge import from_torch

    return from_torch(tensor)


def to_torch(tensor: Tensor) -> Any:
    """Convert a Tensor to a torch tensor, differentiably to any order.

    The result shares the Tensor's memory if it can. It is a copy if the Tensor has a graph and
    either the array is also referenced elsewhere, as by the graph, or it is on a device. Treat the
    result as read-only: an in-place operation on shared memory would change the Tensor, too.

    Examples:
        >>> import torch
        >>> from telegrad.torch import to_torch
        >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
        >>> torch.sum(to_torch(x) ** 3).backward()
        >>> x.grad
        tensor([ 3., 12.])
    """
    _make_known()
    from telegrad.interop.torch.bridge import to_torch

    return to_torch(tensor)


def _make_known() -> None:
    """Register PyTorch with telegrad's passes, whose graphs may lead into PyTorch's from now on."""
    import telegrad.interop.torch.framework  # noqa: F401
