"""The interface to other frameworks whose graphs join a pass: see ``telegrad.interop``.

This folder represents another framework's value by a *stand-in*: a Tensor whose node leads into the
other graph or, for a received value, is an output of a recv node. For a pass, the framework *cuts*
its graph at the entries that the pass reaches; the pieces are nodes of that pass like any other.

This module knows no particular framework. `known` belongs to the process, as types do. It is empty
until a value of a framework is met, or until a program that has imported one makes a call, so
programs that use none pay little.
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
    """The edges in this pass of each node that leads into the other graphs."""
    leaves: dict[Any, Any]
    """For each node of a leaf or another input, the framework's own tensor. For a node of several
    leaves, a list of them; its gradient is then a list, too."""
    pieces: Sequence[Any] = ()
    """Each has ``leave_out(skipped)``, to skip a part of itself, and ``is_apart``: whether it may
    run at the same time as others."""


class Framework(Protocol):
    """The functions that another framework provides for values of its type.

    A leaf has a ``grad``, as a Tensor does. A cotangent that leaves the framework's graph in a
    message is a raw array, unless ``devices`` carries it.
    """

    type: type
    namespace: Any
    """Has the framework's functions ``clone`` and ``zeros_like``."""
    devices: "Devices | None" = None
    """Sends values from device to device; None if the framework can't."""
    parameters: "Parameters | None" = None
    """For optimisers of the framework; None if they may write into parameters at any time."""

    def is_recording(self) -> bool:
        """Tell whether the framework records on this thread."""

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
        """Return a pass's start with a gradient that can stay on its device; None: use `adopted`.

        `root` is a value of any framework, or None.
        """
        return None

    def node(self, value: Any, name: str) -> Any:
        """Return the node that receives a tensor's gradient; `name` is for errors."""

    def leave(
        self, values: list[Any], worker: Worker, levels: LevelRegistry, to: str, is_recorded: bool
    ) -> list[Any]:
        """Replace, in place, the framework's values in a message by the values to send to `to`.

        Return a list with stand-ins for the recorded ones, or `values` itself if there is none.
        """

    def arrive(self, values: list[Any], worker: Worker, frm: str) -> Callable[[], None] | None:
        """Replace, in place, objects that carried the framework's values from `frm` by the values.

        Return a function that the thread which uses the values must call first, or None.
        """

    def join(self, value: Any, stand_in: Tensor | None) -> Any:
        """Return a received value with its stand-in's history; a constant if that is None."""

    def cut(
        self,
        entries: Collection[Any],
        keep_graph: bool,
        targets: Collection[Any],
        is_plain: bool,
    ) -> Cut:
        """Cut the framework's graph at these entries; the gradients of `targets` are wanted.

        `is_plain`: all leaves take their gradients, and nothing observes single gradients.
        """

    def at_once(self) -> int:
        """Return how many pieces may run at the same time, on threads of this process."""
        return 1

    def completed(
        self,
        leaves: Sequence[Any],
        gradients: Sequence[Any],
        context: Mapping[Any, Any],
        loans: dict[Any, Any],
    ) -> dict[Any, Any]:
        """Return the gradients of leaves, by leaf, after the hooks for complete gradients.

        Left out are leaves without a gradient (None), leaves whose gradient a hook has consumed,
        and leaves whose gradients the framework processes further, together with the context's. For
        the latter it puts an object into `loans`, whose ``give_back`` is called at the end of the
        pass. While that object ``is_waiting``, its ``run`` is called once messages to others have
        left.
        """


class Devices(Protocol):
    """Sends gradients from device to device, instead of as arrays in a frame."""

    def carries(self, gradient: Any) -> bool:
        """Tell whether ``pack`` takes a gradient, which may be telegrad's own array on a device."""

    def pack(self, gradients: Sequence[Any], worker: Worker, to: str) -> list[Any]:
        """Return each gradient as it is sent to `to`: a raw array, or facts for ``unpack``."""

    def unpack(self, facts: Sequence[Any], worker: Worker, frm: str) -> list[Any]:
        """Return the gradients from `frm` that were not sent as arrays."""


class Parameters(Protocol):
    """Steps parameters while graphs that have saved them keep the old values."""

    def note(self, parameter: Any) -> None:
        """Note a parameter of a new optimiser; called before anything is computed from it."""

    def successor(self, parameter: Any, gradient: Any) -> Any:
        """Return a copy of a parameter for a step to write into; None for a step in place."""

    def stepped(self, parameter: Any, successor: Any) -> None:
        """Give a parameter the value of its successor; graphs that saved it keep the old value.

        If `successor` is None, the parameter was changed in place, and saved values are outdated.
        """


known: list[Framework] = []


def enlist(framework: Framework) -> None:
    """Register a framework for every worker of this process."""
    known.append(framework)


def framework_of(value: Any) -> Framework | None:
    """Return the framework that a value belongs to, imported if needed; None if there is none."""
    for framework in known:
        if isinstance(value, framework.type):
            return framework
    count = len(known)
    kinds.find(type(value))
    return framework_of(value) if len(known) > count else None


def starts(gradients: Any, roots: Any) -> Any:
    """Return the user's gradients for roots, with other frameworks' converted for a pass.

    Whether there are as many as roots is checked later.
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
    """Return inputs as a list; a single input may be given alone."""
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
    """Return ``node_of_input`` for the value of an RRef among the inputs, on its owner."""
    if not isinstance(value, Tensor) and framework_of(value) is None:
        raise DTypeError(
            f"expected an RRef to a Tensor as an input, got one to {type(value).__name__}"
        )
    return node_of_input(value, "inputs")


def leave(
    values: list[Any], worker: Worker, levels: LevelRegistry, to: str, *, is_recorded: bool
) -> list[Any]:
    """Replace, in place, other frameworks' values in a message by the values to send.

    Return a list with stand-ins for the recorded ones, or `values` itself if there is none.
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
    """Replace, in place, objects that carried other frameworks' values: ``Framework.arrive``."""
    found = None
    for framework in known:
        found = framework.arrive(values, worker, frm) or found
    return found


def pack(gradients: Sequence[Any], worker: Worker, to: str) -> list[Any]:
    """Return gradients as they are sent to `to`: arrays, or facts with the framework's name."""
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
    """Return the gradients that facts from ``pack`` describe."""
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
    """Tell whether a framework packs this gradient, its own or telegrad's on a device."""
    return any(each.devices is not None and each.devices.carries(gradient) for each in known)


def copied(gradient: Any) -> Any:
    """Return a copy of another framework's gradient; any other gradient unchanged."""
    for framework in known:
        if isinstance(gradient, framework.type):
            return framework.namespace.clone(gradient)
    return gradient


def accumulate(leaf: Any, gradient: Any) -> None:
    """Add a gradient to ``.grad`` of another framework's leaf."""
    # Locked, since passes of several threads may share the leaf.
    with alone_with([leaf]):
        leaf.grad = gradient if leaf.grad is None else added(leaf.grad, gradient)


def stand_ins(values: list[Any]) -> tuple[list[Any], dict[int, Framework]]:
    """Return received values with stand-ins for other frameworks', and the frameworks by index.

    If there are none, return the list itself.
    """
    came = values
    owners: dict[int, Framework] = {}
    for framework in known:
        for i, value in enumerate(values):
            if isinstance(value, framework.type):
                if came is values:
                    came = values.copy()
                came[i], owners[i] = wrap(None), framework
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
    """Tell whether a call with these values is recorded, given that telegrad records here.

    It is not if a framework doesn't record here and no value is a Tensor with a history.
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
    for framework in known:
        found = framework.cut(entries, keep_graph, targets, is_plain)
        edges.update(found.edges)
        leaves.update(found.leaves)
        pieces.extend(found.pieces)
    return Cut(edges, leaves, pieces)


def at_once() -> int:
    """Return how many pieces may run at the same time, on threads of this process."""
    return max(framework.at_once() for framework in known)
