"""Views of a context: its gradients and its graph, on all workers that it has reached.

Each worker describes what it has, and says which workers it knows; the one that asks follows these.
Nothing here takes part in a pass.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np

from telegrad.distributed import frameworks
from telegrad.distributed.contexts.context import CURRENT
from telegrad.distributed.contexts.message_nodes import RecvNode, SendNode
from telegrad.distributed.current import autograd_of
from telegrad.rpc.current import current_worker
from telegrad.rpc.wire.functions import expose
from telegrad.tensors import Tensor
from telegrad.tensors.recording.op_node import OutputNode


class GradientRow(msgspec.Struct, frozen=True, array_like=True):
    """A summary of one leaf's gradient."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    norm: float


class GraphNode(msgspec.Struct, frozen=True, array_like=True):
    """One node of a worker's graph; each worker has numbers of its own."""

    number: int
    name: str
    kind: str
    """op, leaf, send or recv."""
    edges: list[int]
    message_id: int
    """Of a send or recv node; else 0."""
    peer: str


def gather(context_id: int, describe: Callable[..., Any], *here: Any) -> dict[str, Any]:
    """Return what each worker says about a context, by name, in the order in which they were met.

    `here` are further arguments of `describe`, for this worker only.
    """
    worker = current_worker()
    autograd_of(worker).contexts.get(context_id)
    found: dict[str, Any] = {}
    token = CURRENT.set(None)  # Looking is not part of the program.
    try:
        found[worker.name], met = describe(context_id, *here)
        while asked := [name for name in dict.fromkeys(met) if name not in found]:
            # All at once: that takes a round trip for each step away, not for each worker.
            calls = [worker.rpc_async(name, describe, (context_id,)) for name in asked]
            met = []
            for name, call in zip(asked, calls):
                found[name], known = call.wait()
                met.extend(known)
    finally:
        CURRENT.reset(token)
    return found


@expose
def describe_gradients(context_id: int) -> tuple[list[Any], list[str]]:
    """Return this worker's gradients in a context, and the workers it knows there."""
    context = autograd_of(current_worker()).contexts.find(context_id)
    if context is None:
        return [], []
    gradients = context.committed_gradients()
    names = _names_in_modules()
    rows = []
    for i, (leaf, gradient) in enumerate(gradients.items()):
        name = _name(leaf, names) or f"leaf {i}"
        raw = frameworks.adopted(gradient, are_gradients=True).detach().numpy()
        norm = float(np.linalg.norm(raw))
        rows.append((name, tuple(raw.shape), str(raw.dtype), norm))
    rows.sort(key=lambda row: row[0])
    return rows, list(context.known)


@expose
def describe_graph(context_id: int, roots: Sequence[Any] = ()) -> tuple[list[Any], list[str]]:
    """Return this worker's graph in a context, and the workers it knows there."""
    context = autograd_of(current_worker()).contexts.find(context_id)
    if context is None:
        return [], []
    with context.lock:
        entries = [*context.spent.values(), *context.sends.values(), *context.recvs.values()]
    starts = [*roots, *entries]
    joined = frameworks.cut(starts, True).edges
    found = _edges_by_node(starts, joined)
    numbers = {node: i for i, node in enumerate(found)}
    names = _names_in_modules()
    rows = []
    for node, leading in found.items():
        message_id = getattr(node, "message_id", 0)
        kind = "op" if node in joined else _kind(node, message_id)
        edges = [numbers[edge] for edge in leading]
        rows.append(
            (numbers[node], _label(node, names), kind, edges, message_id, getattr(node, "peer", ""))
        )
    return rows, list(context.known)


def _edges_by_node(starts: Sequence[Any], joined: Mapping[Any, Sequence[Any]]) -> dict[Any, Any]:
    """Return every node that these reach, newest first, with its edges.

    `joined` has the edges of nodes that lead into another framework's graph.
    """
    found: dict[Any, Any] = {}
    stack = list(starts)
    while stack:
        node = stack.pop()
        if node not in found:
            found[node] = joined.get(node, node.edges)
            stack.extend(found[node])
    return {node: found[node] for node in sorted(found, key=lambda each: each.key, reverse=True)}


def _kind(node: Any, message_id: int) -> str:
    if node.is_leaf:
        return "leaf"
    if node.is_boundary:
        return "recv"
    return "send" if message_id else "op"


def _names_in_modules() -> dict[int, str]:
    """Return, by identity, the names of the parameters of modules that references refer to."""
    names = {}
    for value in current_worker().references.values():
        named = getattr(value, "named_parameters", None)
        if not isinstance(value, type) and callable(named):
            # Another framework's module may raise, if some part of it is elsewhere.
            with suppress(Exception):
                for path, parameter in named():
                    names[id(parameter)] = f"{type(value).__name__}.{path}"
    return names


def _name(leaf: Any, names: Mapping[int, str]) -> str | None:
    """Return the name that a leaf was given or else has in its module, if any."""
    given = leaf.meta.name if isinstance(leaf, Tensor) and leaf.meta is not None else None
    return given or names.get(id(leaf))


def _label(node: Any, names: Mapping[int, str]) -> str:
    if node.is_leaf:
        # The leaf of another framework is represented by a node.
        leaf = node if isinstance(node, Tensor) else node.value
        name = (_name(leaf, names) or "leaf").rpartition(".")[2]
        return f"{name} {'×'.join(map(str, leaf.shape)) or 'scalar'}"
    if isinstance(node, SendNode):
        return f"to {node.peer}"
    if isinstance(node, RecvNode):
        return f"from {node.peer}"
    if isinstance(node, OutputNode):
        return f"value {node.index}"
    return str(node.name()).removesuffix("Backward")
