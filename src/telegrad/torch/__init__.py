"""The door for PyTorch's users: its tensors as telegrad's and back, and stand-ins for its modules.

``telegrad.torch.rpc``, ``telegrad.torch.autograd``, ``telegrad.torch.optim`` and
``telegrad.torch.nn`` stand in for the modules of ``torch.distributed``, for programs that change
their imports and nothing else; they import PyTorch. Importing this alone does not: PyTorch is
imported when a torch tensor is met (``telegrad.interop.torch``).
"""

from typing import Any

from telegrad.tensors import Tensor

__all__ = ["from_torch", "to_torch"]


def from_torch(tensor: Any) -> Tensor:
    """Return a torch tensor as a Tensor that shares its memory; differentiable, to any order.

    Neither side may write into the memory while a backward pass still needs it. Of a CUDA tensor
    it is a copy on its device, which CuPy serves.

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
    """Return a Tensor as a torch tensor; differentiable, to any order.

    It shares the Tensor's memory, unless a graph or somebody else has the value already: then it is
    a copy, as it is of one on a device that has a graph. The memory counts as read-only: an
    in-place operation of PyTorch on the result would change the Tensor too.

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
    """Let passes over workers know that graphs may lead into PyTorch's from now on."""
    import telegrad.interop.torch.framework  # noqa: F401
