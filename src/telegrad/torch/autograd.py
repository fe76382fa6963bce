"""A replacement for ``torch.distributed.autograd``: the same names, running telegrad's passes.

As in PyTorch, roots must be scalars and errors are RuntimeErrors. ``telegrad.distributed.autograd``
offers more and works in the same contexts.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch

from telegrad.distributed import autograd
from telegrad.distributed.autograd import _get_debug_info, _get_max_id, _init
from telegrad.distributed.contexts.context import CURRENT
from telegrad.errors import ContextError, PeerError, UsageError
from telegrad.interop.torch.graph.view import RecvFunction, SendFunction
from telegrad.interop.torch.profile import is_any_on
from telegrad.rpc.current import current_worker
from telegrad.rpc.references.rref import RRef
from telegrad.rpc.wire.functions import expose
from telegrad.torch.rpc.failures import raise_as_torch
from telegrad.torch.rpc.profile.watch import show_pass

__all__ = [
    "DistAutogradContext",
    "_get_debug_info",
    "_get_max_id",
    "_init",
    "_is_valid_context",
    "backward",
    "backward_from_value",
    "backward_on_owner",
    "context",
    "get_gradients",
    "is_available",
]

_NOTHING: AbstractContextManager[None] = nullcontext()


def is_available() -> bool:
    """Return True: distributed autograd is always available."""
    return True


class context:
    """Open a new context, which records the remote calls made inside; yield its id."""

    def __enter__(self) -> int:
        self.autograd_context = _new_context()
        return self.autograd_context._context_id()

    def __exit__(self, *exception: object) -> None:
        _release_context(self.autograd_context._context_id())


def backward(context_id: int, roots: list[torch.Tensor], retain_graph: bool = False) -> None:
    """Run the backward pass from scalar roots, over all workers that the context reaches.

    Arguments:
        context_id: The id from ``with context() as context_id``.
        roots: Computed scalar tensors of this worker (not leaves) that require grad.
        retain_graph: Whether to keep the graph for another pass.

    Raises:
        TypeError: If an argument has the wrong type.
        RuntimeError: If a root or the context is not valid, or the pass fails on any worker.
    """
    if not isinstance(context_id, int) or not isinstance(roots, (list, tuple)):
        raise TypeError(
            "backward(): incompatible function arguments: expected the id of a context and a list "
            f"of tensors, got {type(context_id).__name__} and {type(roots).__name__}"
        )
    _check_roots(roots)
    _find(context_id)
    starts: Any = list(roots)
    try:
        with show_pass() if is_any_on() else _NOTHING:
            autograd.backward(context_id, starts, retain_graph)
    except (PeerError, UsageError) as error:
        raise_as_torch(error)
    except Exception as error:
        # An exception of a derivative rule or a hook, on any worker.
        raise RuntimeError(f"Error on Node {_node_of(error)}: {error}") from error


def _check_roots(roots: Any) -> None:
    if not roots:
        raise RuntimeError("No tensors provided for gradient computation.")
    for root in roots:
        if not isinstance(root, torch.Tensor):
            raise TypeError(
                "backward(): incompatible function arguments: expected a list of tensors, got "
                f"{type(root).__name__} among them"
            )
        if not root.requires_grad:
            raise RuntimeError("requires_grad not set on root")
        if root.numel() != 1:
            raise RuntimeError(
                f"a root of shape {tuple(root.shape)} is not a scalar, all roots need to be "
                "scalar; telegrad.distributed.autograd.backward takes grad_tensors for others"
            )
        if root.grad_fn is None:
            raise RuntimeError("a root does not have a valid gradient function: it is a leaf")


def _node_of(error: BaseException) -> int:
    """Return the id of the worker where an error was raised, read from the error's notes."""
    here = current_worker()
    for note in getattr(error, "__notes__", ()):
        if note.startswith("raised on worker "):
            name = note.removeprefix("raised on worker ").split("'")[1]
            peer = here.peers.get(name)
            if peer is not None:
                return peer.info.id
    return here.id


def backward_from_value(value: Any, context_id: int, retain_graph: bool) -> None:
    """Run a backward pass from an RRef's value; called on the RRef's owner.

    Arguments:
        value: The value, a scalar tensor.
        context_id: The pass's context; -1 for a local pass, which adds to ``.grad``.
        retain_graph: Whether to keep the graph for another pass.

    Raises:
        RuntimeError: If the value is not a tensor, or for the reasons that ``backward`` gives.
    """
    if not isinstance(value, torch.Tensor):
        raise RuntimeError("RRef should contain a tensor for .backward()")
    if context_id == -1:
        value.backward(retain_graph=retain_graph)  # type: ignore[no-untyped-call]
    else:
        backward(context_id, [value], retain_graph)


@expose
def backward_on_owner(reference: RRef, context_id: int, retain_graph: bool) -> None:
    """Run ``backward_from_value`` on an RRef's owner, for a worker that uses the RRef."""
    backward_from_value(reference.local_value(), context_id, retain_graph)


def get_gradients(context_id: int) -> dict[torch.Tensor, torch.Tensor]:
    """Return the gradients that a context has for this worker's leaves, by leaf."""
    _find(context_id)
    return cast(dict[torch.Tensor, torch.Tensor], autograd.get_gradients(context_id))


class DistAutogradContext(autograd.DistAutogradContext):
    """A context that shows its graph as PyTorch's does, with PyTorch's own nodes."""

    def _send_functions(self) -> dict[int, Any]:
        return {
            number: SendFunction(node)
            for number, node in sorted(super()._send_functions().items(), key=lambda item: item[0])
        }

    def _recv_functions(self) -> dict[int, Any]:
        return {number: RecvFunction(node) for number, node in super()._recv_functions().items()}


def _new_context() -> DistAutogradContext:
    current = CURRENT.get()
    if current is not None and not current.context.released:
        raise ContextError(
            "Already have an autograd context id for this thread: "
            f"{current.context.id}; leave it before opening another"
        )
    return DistAutogradContext(autograd._new_context()._found)


def _release_context(context_id: int) -> None:
    _find(context_id)
    autograd._release_context(context_id)


def _retrieve_context(context_id: int) -> DistAutogradContext:
    return DistAutogradContext(_find(context_id)._found)


def _is_valid_context(context_id: int) -> bool:
    _find(context_id)
    return True


def _current_context() -> DistAutogradContext:
    return DistAutogradContext(autograd._current_context()._found)


def _find(context_id: int) -> autograd.DistAutogradContext:
    try:
        return autograd._retrieve_context(context_id)
    except ContextError as error:
        raise ContextError(f"Could not find autograd context with id: {context_id}") from error
