"""Inspect a recorded graph, and control how it keeps its saved values.

A node is the value of ``tensor.grad_fn``: it has ``name()``, ``next_functions``, ``metadata``,
``register_hook`` and ``register_prehook``.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from telegrad.errors import GradientError
from telegrad.graph import Handle
from telegrad.tensors.recording.modes import ModeScope

__all__ = ["Node", "disable_saved_tensors_hooks", "saved_tensors_hooks"]


@runtime_checkable
class Node(Protocol):
    """The public interface of a node of the graph.

    Examples:
        >>> x = tg.tensor([1.0], requires_grad=True)
        >>> (x * 2).grad_fn.name()
        'MultiplyBackward'
    """

    metadata: dict[str, Any] | None
    """For users' notes; under ``detect_anomaly`` it also says where the node was recorded."""

    def name(self) -> str:
        """Return the operation's name, such as ``MultiplyBackward``."""

    @property
    def next_functions(self) -> Sequence[tuple[Any, int]]:
        """The node of each input, with the input's index among that node's results.

        ``(None, 0)`` for an input that needs no gradient.
        """

    def register_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call ``hook(grad_inputs, grad_outputs)`` after the node has run.

        It may return replacements for ``grad_inputs``.
        """

    def register_prehook(self, hook: Callable[..., Any]) -> Handle:
        """Call ``hook(grad_outputs)`` before the node runs; it may return replacements."""


class saved_tensors_hooks(ModeScope):
    """Control how values are kept for the backward pass: on disk, for example, or in fewer bits.

    Only the innermost pair of hooks is called.

    Arguments:
        pack_hook: Called with each value saved inside the block; may return anything.
        unpack_hook: Called with that object when the backward pass needs the value; returns a
            Tensor like the saved one.

    Examples:
        >>> x = tg.tensor([1.0, 2.0], requires_grad=True)
        >>> with tg.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(), tg.asarray):
        ...     y = (x * x).sum()
        >>> y.backward()
        >>> x.grad
        tensor([2., 4.])
    """

    __slots__ = ()

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        for name, hook in (("pack_hook", pack_hook), ("unpack_hook", unpack_hook)):
            if not callable(hook):
                raise GradientError(
                    f"expected a function as {name} of saved_tensors_hooks, got "
                    f"{type(hook).__name__}"
                )
        super().__init__(pack=(pack_hook, unpack_hook))


class disable_saved_tensors_hooks(ModeScope):
    """Keep values unchanged inside the block, whatever hooks are set outside.

    Examples:
        >>> with tg.autograd.graph.disable_saved_tensors_hooks():
        ...     y = tg.exp(tg.tensor([0.0], requires_grad=True))
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(pack=None)
