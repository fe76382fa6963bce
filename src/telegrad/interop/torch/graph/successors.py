"""Step a parameter aside: write its next value into a copy, so that graphs keep the present one.

PyTorch saves a leaf by reference, so an optimiser that writes into a parameter invalidates every
pass whose forward has used it. Instead, such a step writes into a copy, the *successor*. When that
is complete, parameter and successor swap their contents: the parameter, the object that modules,
optimisers and users hold, has the new value from then on. Graphs keep the old value, also those
that a handler is recording at that moment, and a reader sees one value or the other, never a mix.
Such a graph ends at a *former* value of the parameter, which refers to it (``parameter_of``).

Objects that hold a parameter in C++ (a scripted module, the reducer of replicas), hooks on it, and
tensors that share its memory would be left with the old value. So a parameter is replaced only if
only its Python object held it when its first optimiser was made, and none of these is found later.
Parameters on a GPU are not replaced: kernels still queued on other streams may read memory that the
allocator would reuse.

Invariant: a gradient that can't be led to the parameter raises. A pass of PyTorch's own that
arrives at a former value, where nobody would look for the gradient, is an error.
"""

import weakref
from typing import Any, NoReturn

import torch

from telegrad.errors import SavedValueChanged
from telegrad.interop.torch.graph.accumulation import hang, has_node_hooks
from telegrad.interop.torch.graph.replicas import module_of
from telegrad.interop.torch.values.tensors import is_dense

_swap: Any = torch._C._swap_tensor_impl
_count_holders: Any = torch._C._storage_Use_Count
_ALONE: dict[int, "weakref.ref[torch.Tensor]"] = {}
"""The parameters held only by their Python object when an optimiser was made, by identity."""


def note(parameter: torch.Tensor) -> None:
    """Note whether steps may replace a parameter; called when an optimiser is made for it."""
    key = id(parameter)
    if key not in _ALONE and is_dense(parameter) and _is_alone(parameter):
        _ALONE[key] = weakref.ref(parameter, lambda _: _ALONE.pop(key, None))


def _is_alone(parameter: torch.Tensor) -> bool:
    # Two holders of its memory are allowed: the tensor, and the storage object made to ask this.
    asked: Any = parameter
    return bool(asked._use_count() == 1 and _count_holders(asked.untyped_storage()._cdata) <= 2)


def successor(parameter: Any, gradient: torch.Tensor) -> Any:
    """Return a copy of a parameter for a step to write into; None if it is to be stepped in place.

    A sparse gradient changes a few rows of what may be a large table, which no graph saves, so a
    copy would only cost time.
    """
    is_replaced = (
        id(parameter) in _ALONE
        and parameter.is_cpu
        and gradient.layout is torch.strided
        and not parameter.is_shared()
        and not parameter._backward_hooks
        and not parameter._post_accumulate_grad_hooks
        and not has_node_hooks(parameter)
        and module_of(parameter) is None
    )
    if not is_replaced:
        return None
    made = parameter.detach().clone().requires_grad_()
    made._telegrad_version = parameter._version
    return made


def stepped(parameter: torch.Tensor, successor: torch.Tensor | None) -> None:
    """See ``Parameters`` in ``distributed/frameworks.py``."""
    if successor is None:
        # PyTorch's fused optimisers don't increment it.
        torch.autograd.graph.increment_version(parameter)
        return
    former: Any = successor
    if parameter._version != former._telegrad_version:
        # The optimiser holds the parameter in a list of its own, and has stepped it in place.
        return
    _swap(parameter, former)
    former.grad = None
    former._telegrad_parameter = parameter
    hang([(former.register_post_accumulate_grad_hook, _refuse)])


def parameter_of(leaf: torch.Tensor) -> torch.Tensor | None:
    """Return the parameter whose former value a leaf is, if it is one."""
    return getattr(leaf, "_telegrad_parameter", None)


def _refuse(former: torch.Tensor) -> NoReturn:
    former.grad = None
    raise SavedValueChanged(
        f"expected the parameter of shape {tuple(former.shape)} to be as it was in the forward "
        "pass, but a DistributedOptimizer stepped it aside since then, and a backward pass of "
        "PyTorch alone would leave its gradient with the old value; call "
        "telegrad.distributed.autograd.backward(context_id, [loss]), or loss.backward() before "
        "anybody steps"
    )
