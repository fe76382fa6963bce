"""How a node runs the hooks that hang on it. Users see Tensors; the engine may carry raw arrays."""

from collections.abc import Callable, Sequence
from typing import Any

from telegrad.errors import GradientError, ShapeError
from telegrad.graph import Bundle, Cotangent, Handle, NodeHooks

__all__ = ["Hooked", "run_before"]


class Hooked:
    """Mixed into every kind of node; needs only a writable ``hooks``."""

    __slots__ = ()

    def before(self: Any, cotangent: Cotangent) -> Cotangent:
        """Runs the hooks that see the node's own gradient."""
        return run_before(self.hooks, cotangent)

    def after(
        self: Any, contributions: Sequence[Cotangent | None], cotangent: Cotangent
    ) -> Sequence[Cotangent | None]:
        """Runs the hooks that see the gradients of the inputs and may replace them."""
        for hook in list(self.hooks.after.values()):
            shown = tuple(None if c is None else _shown(c) for c in contributions)
            answer = hook(shown, _as_tuple(cotangent))
            if answer is None:
                continue
            answer = answer if isinstance(answer, tuple) else (answer,)
            if len(answer) != len(contributions):
                raise GradientError(
                    f"expected {len(contributions)} gradients from the hook {hook!r} of "
                    f"{self.name()}, got {len(answer)}; return one for each input, or None"
                )
            contributions = [
                new if old is None else _replaced(old, new, hook)
                for old, new in zip(contributions, answer)
            ]
        return contributions

    def register_hook(self: Any, hook: Callable[..., Any]) -> Handle:
        """Calls ``hook(gradients_of_inputs, gradients_of_outputs)`` after this node has run."""
        return Handle(_hooks_of(self).after, hook)

    def register_prehook(self: Any, hook: Callable[..., Any]) -> Handle:
        """Calls ``hook(gradients_of_outputs)`` before this node runs."""
        return Handle(_hooks_of(self).before, hook)

    def explain(self: Any, error: Exception) -> None:
        """Adds to an error that came up in this node which operation it was."""
        note = f"while the backward pass ran {self.name()}"
        metadata = getattr(self, "metadata", None)
        if metadata and "traceback" in metadata:
            note += ", recorded at:\n" + "".join(metadata["traceback"])
        error.add_note(note)

    @property
    def next_functions(self: Any) -> tuple[tuple[Any, int], ...]:
        """The nodes of the inputs, each with 0: every node here has one value."""
        return tuple((edge.as_function(), 0) for edge in self.edges)

    def as_function(self) -> Any:
        return self


def run_before(hooks: NodeHooks, cotangent: Cotangent) -> Cotangent:
    """Runs the tensor hooks, keeps a retained gradient, then runs the pre-hooks."""
    for hook in list(hooks.tensor.values()):
        cotangent = _replaced(cotangent, hook(_shown(cotangent)), hook)
    if hooks.retain is not None:
        hooks.retain(cotangent)
    for hook in list(hooks.before.values()):
        answer = hook(_as_tuple(cotangent))
        if answer is not None:
            cotangent = _from_tuple(cotangent, answer, hook)
    return cotangent


def _hooks_of(node: Any) -> NodeHooks:
    if node.hooks is None:
        node.hooks = NodeHooks()
    hooks: NodeHooks = node.hooks
    return hooks


def _shown(cotangent: Cotangent) -> Any:
    from telegrad.tensors.tensor import Tensor, wrap

    if type(cotangent) is Bundle or isinstance(cotangent, Tensor):
        return cotangent
    return wrap(cotangent)


def _as_tuple(cotangent: Cotangent) -> tuple[Any, ...]:
    if type(cotangent) is Bundle:
        return tuple(None if c is None else _shown(c) for c in cotangent)
    return (_shown(cotangent),)


def _from_tuple(old: Cotangent, answer: Any, hook: Callable[..., Any]) -> Cotangent:
    parts = answer if isinstance(answer, tuple) else (answer,)
    if type(old) is Bundle:
        return Bundle(_replaced(o, p, hook) if o is not None else p for o, p in zip(old, parts))
    return _replaced(old, parts[0], hook)


def _replaced(old: Cotangent, new: Any, hook: Callable[..., Any]) -> Cotangent:
    """What goes on after a hook: its answer, raw where the pass was raw and nothing is lost."""
    from telegrad.tensors.tensor import Tensor

    if new is None:
        return old
    if tuple(new.shape) != tuple(old.shape):
        raise ShapeError(
            f"expected a gradient of shape {tuple(old.shape)} from the hook {hook!r}, got "
            f"{tuple(new.shape)}; a hook may change values, not shapes"
        )
    if isinstance(new, Tensor) and not isinstance(old, Tensor) and not new.is_dual:
        return new.array
    return new
