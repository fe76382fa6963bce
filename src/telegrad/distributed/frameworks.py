"""The seam for values of another framework whose graph joins a pass: see ``telegrad.interop``.

This folder represents such a value by a *stand-in*: a Tensor whose node leads into the other graph
or, where the value arrived, comes out of a recv node. A pass has the framework *cut* its graph at
the entries that the pass reaches; for that pass, the pieces are nodes like any other.

Nothing here knows any framework. `known` belongs to the process, as types do. It is empty until a
value of a framework is met, or until a program that has imported one makes a call, so programs that
use none pay little.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain, repeat
from typing import Any, NamedTuple, Protocol

import numpy as np

from telegrad.autograd.roots import Start, node_of
from telegrad.distributed.contexts.dual_levels import LevelRegistry
from telegrad.distributed.parameter_lock import alone_with
from telegrad.errors import DTypeError, ProtocolViolation
from telegrad.graph import added
from telegrad.rpc.wire import kinds
from telegrad.rpc.worker import Worker
from telegrad.tensors import Tensor, wrap


class Cut(NamedTuple):
    """The graphs of other frameworks in one pass."""

    edges: dict[Any, Sequence[Any]]
    """By node that leads into them: its edges in this pass."""
    leaves: dict[Any, Any]
    """By node that stands for a leaf or another input: the framework's own tensor. If it stands for
    several leaves, a list of them; it takes a list of gradients then."""
    pieces: Sequence[Any] = ()
    """Each has ``leave_out(skipped)``, to skip a part of itself, and ``is_apart``: whether it may
    run at the same time as others."""
    at_once: int = 1
    """How many pieces may run at the same time, on threads of this process."""


class Framework(Protocol):
    """What another framework does for values of its type.

    A leaf has a ``grad``, as a Tensor has. A cotangent that leaves the framework's graph in a
    message is a raw array, unless ``devices`` carries it.
    """

    type: type
    namespace: Any
    """Has the framework's functions ``clone`` and ``zeros_like``."""
    devices: "Devices | None" = None
    """For values that are sent from device to device; None if there are none."""
    parameters: "Parameters | None" = None
    """For its own optimisers; None if they may write into parameters at any time."""

    def is_recording(self) -> bool:
        """Say whether the framework records what this thread does."""

    def default_modes(
        self, scope: AbstractContextManager[Any], keeps_recording: bool
    ) -> AbstractContextManager[Any]:
        """Return the scope, entered in the framework's modes of a new thread.

        `keeps_recording`: whether the thread keeps its own mode of recording.
        """

    def adopted(self, value: Any, is_gradient: bool) -> Tensor:
        """Return a Tensor for a gradient that the user gave, or for a root.

        For a root, only shape, dtype and node matter: the pass enters the graph at that node.
        """

    def start(self, gradient: Any, root: Any) -> Start | None:
        """Return how a pass starts with a gradient that need not leave its device; None: adopted.

        `root` is of any framework, or None.
        """
        return None

    def node(self, value: Any, name: str) -> Any:
        """Return the node that receives a tensor's gradient; `name` is for errors."""

    def leave(
        self, values: list[Any], worker: Worker, levels: LevelRegistry, to: str, is_recorded: bool
    ) -> list[Any]:
        """Replace the framework's values in a message by what is sent to `to`.

        Return a list with stand-ins for those that are recorded, or `values` itself if none is.
        """

    def arrive(self, values: list[Any], worker: Worker, frm: str) -> Callable[[], None] | None:
        """Replace what carried the framework's values from `frm` by the values, where they differ.

        Return what the thread that takes them has to call first, or None.
        """

    def join(self, value: Any, stand_in: Tensor | None) -> Any:
        """Return an arrived value as computed from its stand-in; a constant if that is None."""

    def cut(
        self,
        entries: Collection[Any],
        keep_graph: bool,
        targets: Collection[Any],
        is_plain: bool,
    ) -> Cut:
        """Cut the framework's graph at these entries; the gradients of `targets` are wanted.

        `is_plain`: all leaves shall get their gradients, and nobody looks at these on their way.
        """

    def completed(
        self,
        leaves: Sequence[Any],
        gradients: Sequence[Any],
        context: Mapping[Any, Any],
        loans: dict[Any, Any],
    ) -> dict[Any, Any]:
        """Return the gradients of leaves, by leaf, after the hooks that see the complete ones.

        Left out are leaves without a gradient (None), those whose gradient a hook has used up, and
        those that the framework itself goes on with, together with the context's gradients. For
        those it puts an object into `loans` that has a ``give_back``, called at the end of the
        pass. While that object ``is_waiting``, its ``run`` is called, once messages to others have
        left.
        """


class Devices(Protocol):
    """How gradients go from device to device, and not as arrays in a frame."""

    def carries(self, gradient: Any) -> bool:
        """Say whether ``pack`` takes a gradient, which may be telegrad's own array on a device."""

    def pack(self, gradients: Sequence[Any], worker: Worker, to: str) -> list[Any]:
        """Return what carries each gradient to `to`: a raw array, or an argument for ``unpack``."""

    def unpack(self, facts: Sequence[Any], worker: Worker, frm: str) -> list[Any]:
        """Return the gradients from `frm` that were not sent as arrays."""


class Parameters(Protocol):
    """How parameters are stepped beside graphs that have saved them."""

    def note(self, parameter: Any) -> None:
        """Note a parameter of a new optimiser, before anything is computed from it."""

    def successor(self, parameter: Any, gradient: Any) -> Any:
        """Return a copy of a parameter for a step to write into; None for a step in place."""

    def stepped(self, parameter: Any, successor: Any) -> None:
        """Give a parameter the value of its successor; graphs that saved it keep the old value.

        If `successor` is None, the parameter was changed in place, and saved values are outdated.
        """


known: list[Framework] = []


def enlist(framework: Framework) -> None:
    """Make a framework known to every worker of this process."""
    known.append(framework)


def framework_of(value: Any) -> Framework | None:
    """Return the framework that a value belongs to; import one that serves its type if need be."""
    for framework in known:
        if isinstance(value, framework.type):
            return framework
    count = len(known)
    kinds.find(type(value))
    return framework_of(value) if len(known) > count else None


def starts(gradients: Any, roots: Any) -> Any:
    """Return gradients that the user gave for roots, those of other frameworks for a pass to take.

    Whether there are as many as roots is found out later.
    """
    if not isinstance(gradients, (list, tuple)):
        root = roots[0] if isinstance(roots, (list, tuple)) and roots else roots
        return _start(gradients, root)
    known_roots = roots if isinstance(roots, (list, tuple)) else [roots]
    return [_start(*each) for each in zip(gradients, chain(known_roots, repeat(None)))]


def _start(gradient: Any, root: Any) -> Any:
    if gradient is None or isinstance(gradient, Tensor):
        return gradient
    found = framework_of(gradient)
    if found is None:
        return gradient
    return found.start(gradient, root) or found.adopted(gradient, True)


def adopted(values: Any, *, are_gradients: bool = False) -> Any:
    """Return roots or gradients, with Tensors in place of another framework's values."""
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
    return found.adopted(values, are_gradients)


def listed_inputs(inputs: Any) -> list[Any]:
    """Return inputs as a list; a single one may be given as it is."""
    if isinstance(inputs, Tensor) or framework_of(inputs) is not None:
        return [inputs]
    return list(inputs)


def node_of_input(value: Any, name: str) -> Any:
    """Return the node that receives the gradient of an input, of any framework."""
    if isinstance(value, Tensor):
        return node_of(value, name)
    found = framework_of(value)
    if found is None:
        raise DTypeError(f"expected tensors as {name}, got {type(value).__name__}")
    return found.node(value, name)


def node_of_referent(value: Any) -> Any:
    """Return ``node_of_input`` of what an RRef among the inputs refers to, on its owner."""
    if not isinstance(value, Tensor) and framework_of(value) is None:
        raise DTypeError(
            f"expected an RRef to a Tensor as an input, got one to {type(value).__name__}"
        )
    return node_of_input(value, "inputs")


def leave(
    values: list[Any], worker: Worker, levels: LevelRegistry, to: str, *, is_recorded: bool
) -> list[Any]:
    """Replace the values of other frameworks in a message by what is sent.

    Return a list with stand-ins for them, or `values` itself if there are none.
    """
    if len(known) < 2:
        return known[0].leave(values, worker, levels, to, is_recorded) if known else values
    given = values.copy()
    has_stand_ins = False
    for framework in known:
        before = values.copy()
        found = framework.leave(values, worker, levels, to, is_recorded)
        if found is not values:
            has_stand_ins = True
            given = [b if b is not old else a for a, b, old in zip(given, found, before)]
    return given if has_stand_ins else values


def arrive(values: list[Any], worker: Worker, frm: str) -> Callable[[], None] | None:
    """Replace what carried values of other frameworks by them; see ``Framework.arrive``."""
    found = None
    for framework in known:
        found = framework.arrive(values, worker, frm) or found
    return found


def pack(gradients: Sequence[Any], worker: Worker, to: str) -> list[Any]:
    """Return what carries gradients to `to`: arrays, or facts with the name of their framework."""
    packed: list[Any] = [None] * len(gradients)
    for framework in known:
        devices = framework.devices
        if devices is None:
            continue
        places = [i for i, each in enumerate(gradients) if devices.carries(each)]
        sent = devices.pack([gradients[i] for i in places], worker, to) if places else ()
        for i, each in zip(places, sent):
            packed[i] = each if type(each) is np.ndarray else [_name_of(framework), each]
    return packed


def unpack(facts: Sequence[Any], worker: Worker, frm: str) -> list[Any]:
    """Return the gradients that facts from ``pack`` stand for."""
    found: list[Any] = [None] * len(facts)
    names = [name for name, _ in facts]
    carriers = {_name_of(each): each.devices for each in known}
    for name in dict.fromkeys(names):
        devices = carriers.get(name)
        if devices is None:
            raise ProtocolViolation(
                f"worker {frm!r} sent gradients of {name!r:.100}, whose values it was never sent"
            )
        places = [i for i, each in enumerate(names) if each == name]
        came = devices.unpack([facts[i][1] for i in places], worker, frm)
        for i, each in zip(places, came):
            found[i] = each
    return found


def _name_of(framework: Framework) -> str:
    """Return a name of the framework that is the same on every worker."""
    return framework.type.__module__.partition(".")[0]


def is_carried(gradient: Any) -> bool:
    """Say whether a framework packs this gradient, its own or telegrad's on a device."""
    return any(each.devices is not None and each.devices.carries(gradient) for each in known)


def copied(gradient: Any) -> Any:
    """Return a gradient of another framework with memory of its own; any other as it is."""
    for framework in known:
        if isinstance(gradient, framework.type):
            return framework.namespace.clone(gradient)
    return gradient


def accumulate(leaf: Any, gradient: Any) -> None:
    """Add a gradient to ``.grad`` of another framework's leaf."""
    # Passes of several threads may share the leaf.
    with alone_with([leaf]):
        leaf.grad = gradient if leaf.grad is None else added(leaf.grad, gradient)


def stand_ins(values: list[Any]) -> tuple[list[Any], dict[int, Framework]]:
    """Return what came with stand-ins for other frameworks' values, and whose these are, by index.

    The list itself if none is.
    """
    owners: dict[int, Framework] = {}
    for framework in known:
        for i, value in enumerate(values):
            if isinstance(value, framework.type):
                owners[i] = framework
    if not owners:
        return values, owners
    came = values.copy()
    for i in owners:
        came[i] = wrap(None)
    return came, owners


def make_constant(values: list[Any]) -> None:
    """Remove the history of other frameworks' values."""
    for framework in known:
        for i, value in enumerate(values):
            if isinstance(value, framework.type):
                values[i] = framework.join(value, None)


def join(values: list[Any], stand_ins: list[Any], owners: dict[int, Framework]) -> None:
    """Give the values of other frameworks the history of their stand-ins."""
    for i, owner in owners.items():
        stand_in = stand_ins[i]
        if stand_in.node is not None or stand_in.tangents:
            values[i] = owner.join(values[i], stand_in)


def is_recording(values: list[Any]) -> bool:
    """Say whether a call with these values is recorded, provided that telegrad records here.

    It is not if a framework records nothing here and telegrad has nothing to record either.
    """
    for framework in known:
        if not framework.is_recording():
            return any(isinstance(value, Tensor) and value.node is not None for value in values)
    return True


def default_modes(
    scope: AbstractContextManager[Any], *, keeps_recording: bool = False
) -> AbstractContextManager[Any]:
    """Return the scope, entered in every framework's modes of a new thread."""
    for framework in known:
        scope = framework.default_modes(scope, keeps_recording)
    return scope


def cut(
    entries: list[Any], keep_graph: bool, targets: Collection[Any] = (), is_plain: bool = False
) -> Cut:
    """Cut the graphs of all frameworks at the entries of a pass."""
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
