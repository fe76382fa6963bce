"""The seam for values of another framework whose graph joins a pass: see ``telegrad.interop``.

To this folder such a value is a *stand-in*: a Tensor whose node leads into the other graph, or
(where it arrived) comes out of a recv node. A pass has the framework *cut* its graph by the
entries that reach it; the pieces are nodes like any other, for that pass alone.

Nothing here knows a framework. `known` is the process's, as types are, and empty until a value of
one is met or the program has imported one and makes a call, so a program without pays little.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from telegrad.autograd.roots import node_of
from telegrad.distributed.contexts.dual_levels import LevelRegistry
from telegrad.errors import DTypeError, UsageError
from telegrad.rpc.wire import kinds
from telegrad.rpc.worker import Worker
from telegrad.tensors import Tensor

__all__ = [
    "Cut",
    "Framework",
    "adopted",
    "cut",
    "detach",
    "empty_stand_ins",
    "enlist",
    "framework_of",
    "is_recording",
    "join",
    "known",
    "listed_inputs",
    "node_of_input",
    "node_of_referent",
    "stand_ins",
]


class Cut(NamedTuple):
    """The other framework's graph in one pass."""

    edges: dict[Any, Sequence[Any]]
    """The nodes that lead into it, each with its edges in this pass."""
    leaves: dict[Any, Any]
    """The framework's own tensor for each node that stands for a leaf or another input."""
    pieces: Sequence[Any] = ()
    """Each can leave a part of itself out, with ``leave_out(skipped)``, and tells whether it
    ``is_apart``: it may run while others of them do."""


class Framework(Protocol):
    """What another framework does for values of its type."""

    type: type

    def root(self, value: Any) -> Tensor:
        """A Tensor of its shape and dtype; recorded where the value is."""

    def stand_in(self, value: Any) -> Tensor:
        """A Tensor without an array; recorded where the value is."""

    def empty_stand_in(self, value: Any) -> Tensor:
        """A stand-in that is not recorded, which a recv node may be joined to."""

    def joined(self, value: Any, stand_in: Tensor) -> Any:
        """The value, as computed from the stand-in."""

    def carry(self, values: list[Any], worker: Worker, book: LevelRegistry, to: str) -> None:
        """Replaces those of its values that have tangents or devices by what travels to `to`."""

    def is_recording(self) -> bool:
        """Whether the framework records what this thread does."""

    def serving(self, scope: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
        """The scope of a handler, in the framework's default modes, those of a new thread."""

    def run(self, function: Callable[[], None]) -> None:
        """Calls what runs a pass, in the framework's default modes."""

    def at_once(self) -> int:
        """How many pieces of its graph may run at a time, on threads of this process."""

    def detached(self, value: Any) -> Any:
        """The value without history."""

    def as_gradient(self, value: Any) -> Tensor:
        """A gradient that the user gave, as a Tensor."""

    def accumulate(self, leaf: Any, gradient: Any) -> None:
        """Adds to what the framework keeps at a leaf."""

    def completed(
        self, leaf: Any, gradient: Any, context: Mapping[Any, Any], lent: dict[Any, Any]
    ) -> Any:
        """A leaf's gradient as the hooks that see it whole leave it; None if they used it up.

        None, too, if the framework goes on with it and the gradients of the context itself: then it
        puts into `lent` what has a ``give_back``, called at the end of the pass, for the result.
        """

    def changed(self, leaf: Any) -> None:
        """Notes that a leaf was changed in place: what was saved of it before is out of date."""

    def zeros_like(self, value: Any) -> Any:
        """Zeros of its shape."""

    def named_parameters(self, value: Any) -> Iterable[tuple[str, Any]]:
        """The parameters of a module of the framework's; of anything else none."""

    def target(self, value: Any, name: str) -> Any:
        """The node to ask for a tensor's gradient."""

    def cut(self, entries: Iterable[Any], keep_graph: bool, targets: Collection[Any]) -> Cut:
        """The framework's graph as these entries of a pass reach it; some nodes are asked for."""


known: list[Framework] = []


def enlist(framework: Framework) -> None:
    """Makes a framework known to every worker of this process."""
    if known:
        raise UsageError("expected one framework beside telegrad, got a second one")
    known.append(framework)


def framework_of(value: Any) -> Framework | None:
    """The framework that a value belongs to; loads the one that waits for its type."""
    if not known:
        kinds.find(type(value))
    return known[0] if known and isinstance(value, known[0].type) else None


def adopted(values: Any, *, are_gradients: bool = False) -> Any:
    """Roots or gradients with stand-ins where they are of another framework."""
    if values is None or isinstance(values, Tensor):
        return values
    if isinstance(values, (list, tuple)):
        for value in values:
            if not isinstance(value, Tensor):
                return [adopted(each, are_gradients=are_gradients) for each in values]
        return values
    found = framework_of(values)
    if found is None:
        return values
    return found.as_gradient(values) if are_gradients else found.root(values)


def listed_inputs(inputs: Any) -> list[Any]:
    """Inputs as a list: a single one may be given as it is."""
    if isinstance(inputs, Tensor) or framework_of(inputs) is not None:
        return [inputs]
    return list(inputs)


def node_of_input(value: Any, name: str) -> Any:
    """The node to ask for the gradient of an input, of whichever framework."""
    if isinstance(value, Tensor):
        return node_of(value, name)
    found = framework_of(value)
    if found is None:
        raise DTypeError(f"expected tensors as {name}, got {type(value).__name__}")
    return found.target(value, name)


def node_of_referent(value: Any) -> Any:
    """``node_of_input`` for what an RRef among the inputs refers to; asked on its owner."""
    if not isinstance(value, Tensor) and framework_of(value) is None:
        raise DTypeError(
            f"expected an RRef to a Tensor as an input, got one to {type(value).__name__}"
        )
    return node_of_input(value, "inputs")


def stand_ins(values: list[Any]) -> list[Any]:
    """The slots of a message that leaves, with stand-ins for the values of other frameworks.

    The same list where there are none.
    """
    return _replaced(values, known[0].stand_in)


def empty_stand_ins(values: list[Any]) -> list[Any]:
    """The slots of a message that came, with stand-ins that nothing is recorded of yet.

    The same list where there are none.
    """
    return _replaced(values, known[0].empty_stand_in)


def _replaced(values: list[Any], stand_in: Callable[[Any], Tensor]) -> list[Any]:
    kind = known[0].type
    replaced = values
    for i, value in enumerate(values):
        if isinstance(value, kind):
            if replaced is values:
                replaced = values.copy()
            replaced[i] = stand_in(value)
    return replaced


def join(values: list[Any], stand_ins: list[Any]) -> None:
    """Gives the values of other frameworks the history of their stand-ins."""
    for i, (value, stand_in) in enumerate(zip(values, stand_ins)):
        if stand_in is not value and (stand_in.node is not None or stand_in.tangents):
            values[i] = known[0].joined(value, stand_in)


def detach(values: list[Any]) -> None:
    """Replaces the values of other frameworks by ones without history."""
    if known:
        framework = known[0]
        for i, value in enumerate(values):
            if isinstance(value, framework.type):
                values[i] = framework.detached(value)


def is_recording(values: list[Any]) -> bool:
    """Whether a call with these values is recorded, given that telegrad records here.

    It is not if the framework records nothing here and telegrad has nothing to record.
    """
    return known[0].is_recording() or any(
        isinstance(value, Tensor) and value.node is not None for value in values
    )


def cut(entries: list[Any], keep_graph: bool, targets: Collection[Any] = ()) -> Cut:
    """The graph of the framework that is known, as the entries of a pass reach it."""
    return known[0].cut(entries, keep_graph, targets)
