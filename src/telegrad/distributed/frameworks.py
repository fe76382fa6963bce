"""The seam for values of another framework whose graph joins a pass: see ``telegrad.interop``.

To this folder such a value is a *stand-in*: a Tensor whose node leads into the other graph, or
(where it arrived) comes out of a recv node. A pass has the framework *cut* its graph by the
entries that reach it; the pieces are nodes like any other, for that pass alone.

Nothing here knows a framework. `known` is the process's, as types are, and empty until a value of
one is met or the program has imported one and makes a call, so a program without pays little.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, Protocol

from telegrad.autograd.roots import node_of
from telegrad.distributed.contexts.dual_levels import LevelRegistry
from telegrad.errors import DTypeError
from telegrad.rpc.wire import kinds
from telegrad.rpc.worker import Worker
from telegrad.tensors import Tensor

__all__ = [
    "Cut",
    "Framework",
    "adopted",
    "arrive",
    "carrier_of",
    "copied",
    "cut",
    "default_modes",
    "enlist",
    "framework_of",
    "is_recording",
    "join",
    "known",
    "land",
    "leave",
    "listed_inputs",
    "node_of_input",
    "node_of_referent",
    "pack",
    "run",
    "unpack",
]


class Cut(NamedTuple):
    """The graphs of other frameworks in one pass."""

    edges: dict[Any, Sequence[Any]]
    """The nodes that lead into them, each with its edges in this pass."""
    leaves: dict[Any, Any]
    """The framework's own tensor for each node that stands for a leaf or another input; a list of
    them for one that stands for several leaves, and takes a list of gradients."""
    pieces: Sequence[Any] = ()
    """Each can leave a part of itself out, with ``leave_out(skipped)``, and tells whether it
    ``is_apart``: it may run while others of them do."""
    at_once: int = 1
    """How many pieces may run at a time, on threads of this process."""


class Framework(Protocol):
    """What another framework does for values of its type."""

    type: type

    def is_recording(self) -> bool:
        """Tell whether the framework records what this thread does."""

    def default_modes(self, scope: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
        """Return the scope of a handler, in the framework's modes of a new thread."""

    def run(self, function: Callable[[], None]) -> None:
        """Call what runs a pass, in no mode of this thread but whether it records."""

    def root(self, value: Any) -> Tensor:
        """Return a Tensor of the value's shape and dtype; recorded where the value is."""

    def gradient(self, value: Any) -> Tensor:
        """Return a gradient that the user gave, as a Tensor."""

    def leave(
        self, values: list[Any], worker: Worker, levels: LevelRegistry, to: str, is_recorded: bool
    ) -> list[Any]:
        """Replace the framework's values in a message by what is sent to `to`.

        Return the same with stand-ins for those that are recorded; the list itself if none is.
        """

    def land(self, values: list[Any], worker: Worker, frm: str) -> Callable[[], None] | None:
        """Replace what carried the framework's values from `frm` by the values, where they differ.

        Returns what the thread that takes them has to call first; None if there is nothing to do.
        """

    def pack(self, gradients: Sequence[Any], worker: Worker, to: str) -> list[Any]:
        """Return what carries each gradient to `to`: a raw array, or what ``unpack`` is given."""

    def carries(self, array: Any) -> bool:
        """Tell whether ``pack`` takes this array of telegrad's own, which is on a device."""

    def unpack(self, facts: Sequence[Any], worker: Worker, frm: str) -> list[Any]:
        """Return the gradients from `frm` that were not sent as arrays."""

    def arrive(self, values: list[Any], is_recorded: bool) -> list[Any]:
        """Return what came, with stand-ins to which a recv node may be joined.

        Where nothing is recorded the values lose their history instead. The list itself if it has
        none of the framework's.
        """

    def join(self, value: Any, stand_in: Tensor) -> Any:
        """Return the value that arrived, as computed from its stand-in."""

    def node(self, value: Any, name: str) -> Any:
        """Return the node to ask for a tensor's gradient."""

    def cut(
        self,
        entries: Collection[Any],
        keep_graph: bool,
        targets: Collection[Any],
        is_plain: bool,
    ) -> Cut:
        """Cut the framework's graph as these entries reach it; `targets` are asked for.

        `is_plain`: all leaves are to have their gradients, and nobody looks at these on their way.
        """

    def accumulate(self, leaf: Any, gradient: Any) -> None:
        """Add to what the framework keeps at a leaf."""

    def completed(
        self, leaf: Any, gradient: Any, context: Mapping[Any, Any], loans: dict[Any, Any]
    ) -> Any:
        """Return a leaf's gradient as the hooks that see it whole leave it; None if used up.

        None, too, if the framework goes on with it and the gradients of the context itself: then it
        puts into `loans` what has a ``give_back``, called at the end of the pass, for the result.
        """

    def note_parameter(self, leaf: Any) -> None:
        """Note a parameter that an optimiser is made for, before anything is computed from it."""

    def successor(self, leaf: Any, gradient: Any) -> Any:
        """Return a copy of a parameter for a step to write into; None for a step in place."""

    def succeed(self, leaf: Any, successor: Any) -> None:
        """Give a parameter the value of its successor; what was saved of it keeps the old one."""

    def completed_all(
        self,
        leaves: Sequence[Any],
        gradients: Sequence[Any],
        context: Mapping[Any, Any],
        loans: dict[Any, Any],
    ) -> dict[Any, Any]:
        """Return what ``completed`` does, by leaf, for several; None as a gradient: it has none."""

    def changed(self, leaf: Any) -> None:
        """Note that a leaf was changed in place: what was saved of it before is out of date."""

    def copied(self, gradient: Any) -> Any:
        """Return a gradient with memory of its own."""

    def zeros_like(self, value: Any) -> Any:
        """Return zeros of the value's shape."""


known: list[Framework] = []


def enlist(framework: Framework) -> None:
    """Make a framework known to every worker of this process."""
    known.append(framework)


def framework_of(value: Any) -> Framework | None:
    """Return the framework that a value belongs to; load the one that waits for its type."""
    kinds.find(type(value))
    for framework in known:
        if isinstance(value, framework.type):
            return framework
    return None


def adopted(values: Any, *, are_gradients: bool = False) -> Any:
    """Return roots or gradients with Tensors for those of another framework."""
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
    return found.gradient(values) if are_gradients else found.root(values)


def listed_inputs(inputs: Any) -> list[Any]:
    """Return inputs as a list: a single one may be given as it is."""
    if isinstance(inputs, Tensor) or framework_of(inputs) is not None:
        return [inputs]
    return list(inputs)


def node_of_input(value: Any, name: str) -> Any:
    """Return the node to ask for the gradient of an input, of any framework."""
    if isinstance(value, Tensor):
        return node_of(value, name)
    found = framework_of(value)
    if found is None:
        raise DTypeError(f"expected tensors as {name}, got {type(value).__name__}")
    return found.node(value, name)


def node_of_referent(value: Any) -> Any:
    """Return ``node_of_input`` for what an RRef among the inputs refers to, on its owner."""
    if not isinstance(value, Tensor) and framework_of(value) is None:
        raise DTypeError(
            f"expected an RRef to a Tensor as an input, got one to {type(value).__name__}"
        )
    return node_of_input(value, "inputs")


def leave(
    values: list[Any], worker: Worker, levels: LevelRegistry, to: str, *, is_recorded: bool
) -> list[Any]:
    """Replace the values of other frameworks in a message by what is sent.

    Returns the same with stand-ins for them; the list itself if there are none.
    """
    given = values
    for framework in known:
        found = framework.leave(values, worker, levels, to, is_recorded)
        if found is not values:
            given = found if given is values else _merged(values, given, found)
    return given


def land(values: list[Any], worker: Worker, frm: str) -> Callable[[], None] | None:
    """Replace what carried values of other frameworks by them; see ``Framework.land``."""
    found = None
    for framework in known:
        found = framework.land(values, worker, frm) or found
    return found


def pack(gradients: Sequence[Any], worker: Worker, to: str) -> list[Any]:
    """Return what carries gradients of one other framework to `to`: arrays, or facts."""
    owner = carrier_of(gradients[0])
    assert owner is not None
    return owner.pack(gradients, worker, to)


def carrier_of(gradient: Any) -> Framework | None:
    """Return the framework that packs a gradient, its own or one of telegrad's on a device."""
    found = framework_of(gradient)
    if found is None:
        found = next((each for each in known if each.carries(gradient)), None)
    return found


def copied(gradient: Any) -> Any:
    """Return a gradient of another framework with memory of its own; any other as it is."""
    for framework in known:
        if isinstance(gradient, framework.type):
            return framework.copied(gradient)
    return gradient


def unpack(facts: Sequence[Any], worker: Worker, frm: str) -> list[Any]:
    """Return the gradients that facts of another framework stand for."""
    return known[0].unpack(facts, worker, frm)


def arrive(values: list[Any], *, is_recorded: bool) -> list[Any]:
    """Return what came, with stand-ins that nothing is recorded of yet; the list itself if none.

    Where nothing is recorded the values lose their history instead.
    """
    came = values
    for framework in known:
        found = framework.arrive(values, is_recorded)
        if found is not values:
            came = found if came is values else _merged(values, came, found)
    return came


def _merged(values: list[Any], first: list[Any], second: list[Any]) -> list[Any]:
    """Return the stand-ins of two frameworks in one list."""
    return [b if a is value else a for value, a, b in zip(values, first, second)]


def join(values: list[Any], stand_ins: list[Any]) -> None:
    """Give the values of other frameworks the history of their stand-ins."""
    for i, (value, stand_in) in enumerate(zip(values, stand_ins)):
        if stand_in is not value and (stand_in.node is not None or stand_in.tangents):
            owner = framework_of(value)
            assert owner is not None
            values[i] = owner.join(value, stand_in)


def is_recording(values: list[Any]) -> bool:
    """Tell whether a call with these values is recorded, given that telegrad records here.

    It is not if a framework records nothing here and telegrad has nothing to record.
    """
    return all(framework.is_recording() for framework in known) or any(
        isinstance(value, Tensor) and value.node is not None for value in values
    )


def default_modes(scope: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
    """Return a scope in which every framework is in the modes of a new thread."""
    for framework in known:
        scope = framework.default_modes(scope)
    return scope


def run(function: Callable[[], None]) -> None:
    """Call what runs a pass, in no modes of this thread but whether it records."""
    for framework in known:
        function = partial(framework.run, function)
    function()


def cut(
    entries: list[Any], keep_graph: bool, targets: Collection[Any] = (), is_plain: bool = False
) -> Cut:
    """Cut the graphs of all frameworks as the entries of a pass reach them."""
    if len(known) == 1:
        return known[0].cut(entries, keep_graph, targets, is_plain)
    edges: dict[Any, Sequence[Any]] = {}
    leaves: dict[Any, Any] = {}
    pieces: list[Any] = []
    at_once = 1
    for framework in known:
        found = framework.cut(entries, keep_graph, targets, is_plain)
        edges.update(found.edges)
        leaves.update(found.leaves)
        pieces.extend(found.pieces)
        at_once = max(at_once, found.at_once)
    return Cut(edges, leaves, pieces, at_once)
