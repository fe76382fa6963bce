"""What a Function keeps from its forward to its derivatives: ``ctx``.

Values given to ``save_for_backward`` are kept without a reference cycle: an input as its value and
the node it came from, a result as its value and its place among the results. ``saved_tensors``
joins them with their history again, so the backward of a Function can itself be differentiated.
A value that is neither (an intermediate one) was computed unrecorded and comes back as a constant:
return it as a result, or compute it again in backward, where its derivative matters.
"""

import copy
import weakref
from collections.abc import Sequence
from typing import Any

from telegrad.errors import DTypeError, GradientError, GraphFreedError
from telegrad.tensors import LEAF, Tensor, wrap
from telegrad.tensors.modes import Mode
from telegrad.tensors.saving import has_tangents, restored, stored

__all__ = ["FunctionCtx", "history_of"]


def history_of(x: Tensor) -> Any:
    """The node that gradients of `x` go to, or None."""
    return x if x.node is LEAF else x.node


class _Saved:
    """One saved value: how it is kept, and where its history is found again."""

    __slots__ = ("history", "kept", "output")

    def __init__(self, kept: Any, history: Any = None, output: int | None = None) -> None:
        self.kept = kept
        self.history = history
        self.output = output

    def restore(self, node: Any) -> Tensor:
        value = restored(self.kept)
        history = self.history
        if self.output is not None and node is not None:
            history = node.of_output(self.output)
        if history is None:
            return value
        if history.is_leaf and history.array is value.array and not value.tangents:
            leaf: Tensor = history
            return leaf
        return wrap(value.array, history, value.tangents)


class FunctionCtx:
    """Passed to every method of a Function; it takes any attribute."""

    def __init__(self, name: str, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        """For each argument of ``apply``, whether it requires grad."""
        self.materialize_grads = True
        self._name = name
        self._for_backward: tuple[Any, ...] | None = None
        self._for_forward: tuple[Any, ...] | None = None
        self._constant_outputs: tuple[Tensor, ...] = ()
        self._saved: tuple[_Saved | None, ...] | None = ()
        self._shown: tuple[Any, ...] | None = None
        self._node: weakref.ref[Any] | None = None

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keeps arguments and results of ``forward`` (or None) for ``backward``."""
        self._for_backward = self._checked(tensors, "save_for_backward")

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keeps arguments and results of ``forward`` (or None) for ``jvp``."""
        self._for_forward = self._checked(tensors, "save_for_forward")

    def _checked(self, tensors: tuple[Any, ...], method: str) -> tuple[Any, ...]:
        for i, each in enumerate(tensors):
            if each is not None and not isinstance(each, Tensor):
                raise DTypeError(
                    f"expected Tensors or None for {method} of {self._name}, got "
                    f"{type(each).__name__} as number {i}; keep other values as attributes of ctx"
                )
        return tensors

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What ``save_for_backward`` kept (in ``jvp``: what ``save_for_forward`` kept)."""
        if self._shown is not None:
            return self._shown
        if self._saved is None:
            raise GraphFreedError(
                f"expected a graph that still has its saved values, got {self._name} whose values "
                "were freed by an earlier backward pass; pass retain_graph=True to that pass"
            )
        node = None if self._node is None else self._node()
        return tuple(None if each is None else each.restore(node) for each in self._saved)

    def mark_non_differentiable(self, *outputs: Tensor) -> None:
        """Makes these results constants; ``backward`` still receives an argument for each."""
        self._constant_outputs = outputs

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Refused: see the message."""
        raise GradientError(
            f"expected no mark_dirty in {self._name}: arguments can't be changed in place here. "
            "Values do not alias, so a write inside forward changes nothing outside; return the "
            "new value and let the caller rebind it, x = F.apply(x)"
        )

    def set_materialize_grads(self, value: bool) -> None:
        """Whether missing gradients and tangents come as zeros (the default) or as None."""
        self.materialize_grads = bool(value)

    # What follows is for the modules beside this one.

    def is_constant(self, output: Tensor) -> bool:
        return any(each is output for each in self._constant_outputs)

    def keep(
        self,
        seen: Sequence[Any],
        args: Sequence[Any],
        raw: Sequence[Any],
        outputs: Sequence[Any],
        node: Any,
        mode: Mode,
    ) -> None:
        """Stores what is to be saved; the user's code saw `seen` for `args`, `raw` for the rest."""
        inputs = {id(s): a for s, a in zip(seen, args) if isinstance(a, Tensor)}
        places = {id(r): j for j, r in enumerate(raw) if isinstance(r, Tensor)}
        saved: list[_Saved | None] = []
        for tensor in self._for_backward or ():
            if tensor is None:
                saved.append(None)
            elif id(tensor) in places and id(tensor) not in inputs:
                j = places[id(tensor)]
                has_node = outputs[j].node is not None
                kept = stored(outputs[j], mode, self._name)
                saved.append(_Saved(kept, output=j if has_node else None))
            else:
                original = inputs.get(id(tensor))
                if original is None or original.array is not tensor.array:
                    original = tensor
                kept = stored(original, mode, self._name)
                saved.append(_Saved(kept, history=history_of(original)))
        self._saved = tuple(saved)
        self._for_backward = self._for_forward = None
        self._constant_outputs = ()
        self._node = weakref.ref(node)
        replacements = {id(s): a for s, a in zip(seen, args) if s is not a}
        for name, value in list(vars(self).items()):
            if id(value) in replacements:
                setattr(self, name, replacements[id(value)])

    def for_jvp(self, seen: Sequence[Any], stand_ins: Sequence[Any]) -> "FunctionCtx":
        """A copy in which what the user's code saw is replaced by what one level is to see."""
        by_id = {id(s): r for s, r in zip(seen, stand_ins)}
        twin = copy.copy(self)
        for name, value in list(vars(self).items()):
            if id(value) in by_id and isinstance(value, Tensor):
                setattr(twin, name, by_id[id(value)])
        kept = self._for_forward if self._for_forward is not None else self._for_backward
        twin._shown = tuple(by_id.get(id(t), t) for t in kept or ())
        return twin

    def saved_histories(self) -> list[Any]:
        """The nodes behind the saved values, without unpacking them."""
        node = None if self._node is None else self._node()
        found = []
        for each in self._saved or ():
            if each is not None and each.output is not None and node is not None:
                found.append(node.of_output(each.output))
            elif each is not None and each.history is not None:
                found.append(each.history)
        return found

    def saves_tangents(self) -> bool:
        """Whether a saved value carries a tangent of an open level."""
        return any(each is not None and has_tangents(each.kept) for each in self._saved or ())

    def saves_anything(self) -> bool:
        return bool(self._saved)

    def release(self) -> None:
        """Drops the saved values."""
        self._saved = None
