"""The values that one call of a Function saves for its derivatives.

They are kept without a reference cycle: an argument as its value and its node, a result as its
value and its index among the results. A restored value has its history again, so the backward of a
Function can itself be differentiated.
"""

import weakref
from collections.abc import Sequence
from typing import Any

from telegrad.errors import GraphFreedError
from telegrad.tensors import Tensor, history_of, wrap
from telegrad.tensors.recording.modes import Mode
from telegrad.tensors.recording.saved_values import has_tangents, restored, stored


class Saved:
    """One saved value, and how to find its history again."""

    __slots__ = ("_history", "_output", "kept")

    def __init__(self, kept: Any, history: Any = None, output: int | None = None) -> None:
        self.kept = kept
        self._history = history
        self._output = output

    def history(self, node: Any) -> Any:
        """Return the node of the value; `node` is that of the call."""
        return self._history if self._output is None else node.of_output(self._output)

    def restore(self, node: Any) -> Tensor:
        value = restored(self.kept)
        history = self.history(node)
        if history is None:
            return value
        if history.is_leaf and history.array is value.array:
            leaf: Tensor = history
            return leaf
        return wrap(value.array, history, value.tangents)


class Savings:
    """The state behind a ``ctx``: first the values that the user named, then those kept."""

    __slots__ = (
        "_node",
        "constant_outputs",
        "for_backward",
        "for_forward",
        "name",
        "residuals",
        "saved",
        "shown",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.for_backward: tuple[Any, ...] = ()
        self.for_forward: tuple[Any, ...] | None = None
        self.constant_outputs: tuple[Tensor, ...] = ()
        self.saved: tuple[Saved | None, ...] | None = ()
        """None after the graph was freed."""
        self.residuals: Any = None
        """The value of ``save_residuals``; freed with the saved values."""
        self.shown: tuple[Any, ...] | None = None
        """The value of ``saved_tensors`` while ``jvp`` runs."""
        self._node: weakref.ref[Any] | None = None

    def is_constant(self, output: Any) -> bool:
        """Tell whether the user's code marked this result as not differentiable."""
        return any(each is output for each in self.constant_outputs)

    def keep(
        self,
        inputs: dict[int, Tensor],
        places: dict[int, int],
        outputs: Sequence[Any],
        node: Any,
        mode: Mode,
    ) -> None:
        """Store the values named by ``save_for_backward``.

        By the id of a value that the user's code saw, `inputs` gives the argument that it stood
        for, and `places` the index of the result that it became.
        """
        saved: list[Saved | None] = []
        for tensor in self.for_backward:
            if tensor is None:
                saved.append(None)
            elif id(tensor) in places and id(tensor) not in inputs:
                j = places[id(tensor)]
                kept = stored(outputs[j], mode, self.name)
                saved.append(Saved(kept, output=None if outputs[j].node is None else j))
            else:
                original = inputs.get(id(tensor), tensor)
                if original.array is not tensor.array:
                    # Forward gave the stand-in another value, which is an intermediate one.
                    original = tensor
                saved.append(Saved(stored(original, mode, self.name), history_of(original)))
        self.saved = tuple(saved)
        self.for_backward, self.for_forward, self.constant_outputs = (), None, ()
        self._node = weakref.ref(node)

    def restore(self) -> tuple[Tensor | None, ...]:
        """Return the saved values with their histories."""
        node = self._call()
        return tuple(None if each is None else each.restore(node) for each in self._unfreed())

    def kept_residuals(self) -> Any:
        """Return the value that ``save_residuals`` kept."""
        self._unfreed()
        return self.residuals

    def _unfreed(self) -> tuple[Saved | None, ...]:
        if self.saved is None:
            raise GraphFreedError(
                f"expected a graph that still has its saved values, got {self.name} whose values "
                "were freed by an earlier backward pass; pass retain_graph=True to that pass"
            )
        return self.saved

    def histories(self) -> list[Any]:
        """Return the nodes behind the saved values, without unpacking the values."""
        found = (each.history(self._call()) for each in self.saved or () if each is not None)
        return [node for node in found if node is not None]

    def have_tangents(self) -> bool:
        """Tell whether a saved value carries a tangent of an open level."""
        return any(each is not None and has_tangents(each.kept) for each in self.saved or ())

    def _call(self) -> Any:
        return None if self._node is None else self._node()
