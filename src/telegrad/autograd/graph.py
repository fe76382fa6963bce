"""Looking at a recorded graph, and deciding how its values are kept.

A node is what ``tensor.grad_fn`` gives: it has ``name()``, ``next_functions``, ``metadata``,
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
    """What users may ask of a node of the graph.

    Examples:
        >>> x = tg.tensor([1.0], requires_grad=True)
        >>> (x * 2).grad_fn.name()
        'MultiplyBackward'
    """

    metadata: dict[str, Any] | None
    """Whatever its users note on it; under ``detect_anomaly`` where it was recorded."""

    def name(self) -> str:
        """Return the operation, as in ``MultiplyBackward``."""

    @property
    def next_functions(self) -> Sequence[tuple[Any, int]]:
        """For each input, the node it came from and which of that node's results it is.

        ``(None, 0)`` for an input that needs no gradient.
        """

    def register_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call ``hook(grad_inputs, grad_outputs)`` after the node has run.

        It may return replacements for ``grad_inputs``.
        """

    def register_prehook(self, hook: Callable[..., Any]) -> Handle:
        """Call ``hook(grad_outputs)`` before the node runs; it may return replacements."""


class saved_tensors_hooks(ModeScope):
    """Decide how values are kept for the backward pass: on disk, say, or in fewer bits.

    The innermost pair of hooks counts.

    Arguments:
        pack_hook: Called with each value saved inside; may return anything.
        unpack_hook: Gets that when the backward pass needs the value, and returns a Tensor like the
            first.

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
    """Keep values as they are inside, whatever hooks are set around.

    Examples:
        >>> with tg.autograd.graph.disable_saved_tensors_hooks():
        ...     y = tg.exp(tg.tensor([0.0], requires_grad=True))
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(pack=None)
