"""The hooks of a torch leaf's gradient accumulation, in passes that telegrad runs.

PyTorch runs the hooks of the ``AccumulateGrad`` node (``register_prehook``, ``register_hook``) and
post-accumulate hooks when that node adds to ``.grad``. A distributed pass adds nothing to
``.grad``: the gradient goes to the context. The hooks still run, once a pass, when the leaf's
gradient is complete.

A post-accumulate hook receives the leaf and reads its ``.grad``. So ``.grad`` is lent to the hook:
while it runs, ``.grad`` is the gradient of this pass alone. The context gets the gradient that the
hook leaves there, and none if that is None (an optimiser that steps and frees during the pass).
Afterwards ``.grad`` is restored.
"""

import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from telegrad.distributed.parameter_lock import alone_with
from telegrad.interop.torch.bridge import accumulator_of


def completed(leaf: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor | None:
    """Apply the accumulation hooks to a leaf's complete gradient; None if they consume it.

    The hooks of the tensor itself have run already.
    """
    before, after = _NODE_HOOKS.of(leaf) or ((), ())
    for hook in before:
        answer = hook((gradient,))
        if answer is not None:
            gradient = answer[0] if isinstance(answer, tuple) else answer
    # Hooks may have kept it, or returned a tensor of the program's own.
    if gradient.layout is torch.strided and (before or gradient.stride() != leaf.stride()):
        gradient = _laid_out(leaf, gradient)
    hooks = leaf._post_accumulate_grad_hooks
    left = _lent(leaf, gradient, list(hooks.values())) if hooks else gradient
    for hook in after:
        hook((), (gradient,))
    return left


def are_plain(leaves: Iterable[torch.Tensor], gradients: Iterable[torch.Tensor | None]) -> bool:
    """Tell whether no gradient is None and ``completed`` would return each one unchanged."""
    known, made, strided = _NODE_HOOKS.without, _NODE_HOOKS.made(), torch.strided
    for leaf, gradient in zip(leaves, gradients):
        if not (
            (before := known.get(id(leaf)))
            and before[1] == made
            and gradient is not None
            and gradient.layout is strided
            and gradient.stride() == leaf.stride()
            and leaf._post_accumulate_grad_hooks is None
        ):
            return False
    return True


def _laid_out(leaf: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Return a copy with the leaf's strides, as PyTorch promises: writable, not expanded."""
    with torch.set_grad_enabled(gradient.requires_grad):
        made = torch.empty_like(leaf, dtype=gradient.dtype, device=gradient.device)
        return made.copy_(gradient)


def hang(hooks: Iterable[tuple[Callable[[Any], Any], Any]]) -> list[Any]:
    """Register telegrad's own hooks, given as pairs (registering function, hook)."""
    return _NODE_HOOKS.hang(hooks)


def has_node_hooks(leaf: torch.Tensor) -> bool:
    """Tell whether users registered hooks on the node that accumulates a leaf's gradient."""
    return _NODE_HOOKS.of(leaf) is not None


def _lent(leaf: torch.Tensor, gradient: torch.Tensor, hooks: list[Any]) -> torch.Tensor | None:
    # An optimiser of this worker lends .grad, too, and other passes may reach the leaf.
    with alone_with([leaf]):
        before, leaf.grad = leaf.grad, gradient
        try:
            for hook in hooks:
                hook(leaf)
            return leaf.grad
        finally:
            leaf.grad = before


class _NodeHooks:
    """Finds the hooks that users registered on the ``AccumulateGrad`` nodes of leaves.

    PyTorch lists a node's hooks only in the handle of another hook registered there. That is slow,
    and hardly any leaf has such hooks. So a leaf without any is remembered, together with PyTorch's
    count of hooks of all kinds made so far; it is asked again only when that count has grown.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._own = 0
        """How many of all hooks made are telegrad's."""
        self.without: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        """Leaves without hooks, by identity, each with the count of `made` at that time."""

    def made(self) -> int:
        """Return how many hooks that aren't telegrad's were made so far."""
        return RemovableHandle.next_id - self._own

    def hang(self, hooks: Iterable[tuple[Callable[[Any], Any], Any]]) -> list[Any]:
        """Register hooks that count as telegrad's; return their handles."""
        with self._lock:
            return self._hang(hooks)

    def _hang(self, hooks: Iterable[tuple[Callable[[Any], Any], Any]]) -> list[Any]:
        handles = [register(hook) for register, hook in hooks]
        self._own += len(handles)
        return handles

    def of(self, leaf: torch.Tensor) -> tuple[list[Any], list[Any]] | None:
        """Return the hooks that run before and after the leaf's node; None if there are none."""
        known = self.without.get(id(leaf))
        # Telegrad's hooks are counted after they are made, so a user's hook is never missed.
        if known is not None and known[1] == self.made():
            return None
        with self._lock:
            made = self.made()
            node = accumulator_of(leaf)
            handles = self._hang([(node.register_prehook, _ask), (node.register_hook, _ask)])
        before, after = ([h for h in _siblings(each) if h is not _ask] for each in handles)
        for handle in handles:
            handle.remove()
        if before or after:
            return before, after
        key = id(leaf)
        reference = weakref.ref(leaf, lambda _: self.without.pop(key, None))
        self.without[key] = reference, made
        return None


def _ask(*_: Any) -> None:
    """Do nothing: a hook whose handle gives access to the node's other hooks."""


def _siblings(handle: RemovableHandle) -> list[Any]:
    return list((handle.hooks_dict_ref() or {}).values())


_NODE_HOOKS = _NodeHooks()
