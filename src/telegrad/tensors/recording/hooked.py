"""How a node runs its hooks. Users see Tensors, though the engine may carry raw arrays."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import msgspec

from telegrad.errors import GradientError, InternalError
from telegrad.graph import Bundle, Contributions, Cotangent, Handle, Node, NodeHooks, hooks_of
from telegrad.tensors.describe import no_tensor
from telegrad.tensors.late_bound import late_bound
from telegrad.tensors.likeness import check_like
from telegrad.tensors.shared import unshared
from telegrad.tensors.tensor import Tensor, wrap


class Hooked:
    """A mixin for every node that is no leaf; it needs only a writable ``hooks``."""

    __slots__ = ()

    is_leaf: ClassVar[bool] = False
    is_boundary: ClassVar[bool] = False

    def release(self) -> None:
        """Drop the saved values; many nodes have none."""

    def before_capture(self: Any, cotangent: Cotangent) -> Cotangent:
        """Run the hooks of the value; their result is the gradient that was asked for here."""
        return run_on_value(self.hooks, cotangent)

    def before_run(self: Any, cotangent: Cotangent) -> Cotangent:
        """Run the hooks of the node, which is about to run."""
        return run_on_node(self.hooks, cotangent)

    def after(
        self: Any, contributions: Sequence[Cotangent | None], cotangent: Cotangent
    ) -> Sequence[Cotangent | None]:
        """Run the hooks that see the gradients of the inputs and may replace them."""
        places = self.input_places()
        for hook in list(self.hooks.after.values()):
            given = [None if p is None else contributions[p] for p in places]
            shown = tuple(None if c is None else _shown(c) for c in given)
            answer = hook(shown, _as_tuple(cotangent))
            if answer is None:
                continue
            answer = answer if isinstance(answer, tuple) else (answer,)
            if len(answer) != len(places):
                raise GradientError(
                    f"expected {len(places)} gradients from the hook {hook!r} of {self.name()}, "
                    f"one for each input, got {len(answer)}; return None to change nothing"
                )
            contributions = [
                None if answer[at] is None else _replaced(old, answer[at], hook)
                for at, old in ((places.index(i), c) for i, c in enumerate(contributions))
            ]
        return contributions

    def pass_by(self: Any, cotangent: Cotangent) -> None:
        """Run the hooks of a node where ``backward`` ends: no input of it needs a gradient."""
        self.after((None,) * len(self.edges), self.before_run(cotangent))

    def input_places(self: Any) -> list[int | None]:
        """Return for each input the place of its edge, or None where it needs no gradient."""
        wanted = getattr(self, "wanted", None)
        if wanted is None or len(wanted) != len(self.edges):
            return list(range(len(self.edges)))
        return [wanted.index(i) if i in wanted else None for i in self.inputs_shown()]

    def inputs_shown(self: Any) -> Sequence[int]:
        """Return the numbers of the inputs that hooks and ``next_functions`` show."""
        return range(len(self.primitive.inputs))

    def register_hook(self: Any, hook: Callable[..., Any]) -> Handle:
        """Call ``hook(gradients_of_inputs, gradients_of_outputs)`` after this node has run.

        It may return a gradient for each input, None for those that are to get none.
        """
        return Handle(hooks_of(self).after, hook)

    def register_prehook(self: Any, hook: Callable[..., Any]) -> Handle:
        """Call ``hook(gradients_of_outputs)`` before this node runs.

        It may return a gradient for each output, None for zeros.
        """
        return Handle(hooks_of(self).before, hook)

    def explain(self: Any, error: Exception) -> None:
        """Add to an error that this node raised which operation it was."""
        note = f"while the backward pass ran {self.name()}"
        metadata = getattr(self, "metadata", None)
        if metadata and "traceback" in metadata:
            note += ", recorded at:\n" + "".join(metadata["traceback"])
        error.add_note(note)

    @property
    def next_functions(self: Any) -> tuple[tuple[Any, int], ...]:
        """For each input its node, None if it needs no gradient, and which of the results it is."""
        return tuple(
            (None, 0) if p is None else self.edges[p].as_input() for p in self.input_places()
        )

    def as_function(self) -> Any:
        """Return what ``grad_fn`` shows for a value of this node."""
        return self

    def as_input(self) -> tuple[Any, int]:
        """Return what ``next_functions`` shows for a value of this node."""
        return self, 0


class HookedStruct(msgspec.Struct, Hooked, eq=False, kw_only=True, weakref=True):
    """A node that is a struct, with the fields that every such node has."""

    hooks: NodeHooks | None = None
    metadata: dict[str, Any] | None = None
    """What users and ``detect_anomaly`` attach to a node."""


class BoundaryStruct(HookedStruct, eq=False, kw_only=True):
    """A boundary: a node that no pass of this process alone can run."""

    edges: ClassVar[tuple[Node, ...]] = ()
    freed: ClassVar[bool] = True
    is_boundary: ClassVar[bool] = True

    def pull(self: Any, cotangent: Cotangent, /) -> Contributions:
        raise InternalError(f"expected the cotangent of {self.name()} to leave, but it was run")

    pull_recorded = pull


def run_on_value(hooks: NodeHooks, cotangent: Cotangent) -> Cotangent:
    """Run the tensor hooks."""
    for hook in list(hooks.tensor.values()):
        cotangent = _replaced(cotangent, hook(_shown(cotangent)), hook)
    return cotangent


def run_on_node(hooks: NodeHooks, cotangent: Cotangent) -> Cotangent:
    """Run the pre-hooks."""
    for hook in list(hooks.before.values()):
        answer = hook(_as_tuple(cotangent))
        if answer is not None:
            cotangent = _from_tuple(cotangent, answer, hook)
    return cotangent


def run_accumulated(hooks: NodeHooks, leaf: Any, gradient: Cotangent) -> None:
    """Run the hooks of a leaf that has accumulated this gradient, then those of its node."""
    for hook in list(hooks.accumulated.values()):
        _expect_nothing(hook, hook(leaf))
    for hook in list(hooks.after.values()):
        _expect_nothing(hook, hook((), (_shown(gradient),)))


def _expect_nothing(hook: Callable[..., Any], answer: Any) -> None:
    # A leaf's node has no inputs, so a hook that returns their gradients returns ().
    if answer is not None and not (isinstance(answer, tuple) and not answer):
        raise GradientError(
            f"expected None from the hook {hook!r}, which runs when its leaf has accumulated, got "
            f"{type(answer).__name__}; set .grad in it, or replace the gradient by register_hook"
        )


def _shown(cotangent: Cotangent) -> Any:
    if type(cotangent) is Bundle or isinstance(cotangent, Tensor):
        return cotangent
    return wrap(cotangent)


def _as_tuple(cotangent: Cotangent) -> tuple[Any, ...]:
    if type(cotangent) is Bundle:
        return tuple(None if c is None else _shown(c) for c in cotangent)
    return (_shown(cotangent),)


def _from_tuple(old: Cotangent, answer: Any, hook: Callable[..., Any]) -> Cotangent:
    parts = answer if isinstance(answer, tuple) else (answer,)
    expected = len(old) if type(old) is Bundle else 1
    if len(parts) != expected:
        raise GradientError(
            f"expected {expected} gradients from the hook {hook!r}, one for each output, got "
            f"{len(parts)}; return None to change nothing"
        )
    if type(old) is Bundle:
        return Bundle(_given(o, p, hook) for o, p in zip(old, parts))
    return _given(old, parts[0], hook)


def _given(old: Cotangent, new: Any, hook: Callable[..., Any]) -> Cotangent:
    """Return the cotangent after one answer of a pre-hook; None stands for zeros."""
    if new is None and old is not None:
        new = late_bound.namespace.zeros_like(_shown(old))
    return _replaced(old, new, hook)


def _replaced(old: Cotangent, new: Any, hook: Callable[..., Any]) -> Cotangent:
    """Return the cotangent after a hook: its answer, as a raw array if `old` is one."""
    if new is None:
        return old
    if old is None:
        raise GradientError(
            f"expected None from the hook {hook!r} where no gradient came, got a "
            f"{type(new).__name__}"
        )
    if not isinstance(new, Tensor):
        raise no_tensor(new, f"from the hook {hook!r}", "a Tensor or None")
    check_like(new, _shown(old), f"the gradient from the hook {hook!r}", "the one it was given")
    new = unshared(new)
    return new if isinstance(old, Tensor) or new.is_dual else new.array


# Tensor needs them for the hooks of leaves.
late_bound.run_on_value = run_on_value
late_bound.run_on_node = run_on_node
