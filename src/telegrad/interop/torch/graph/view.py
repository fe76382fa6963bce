"""A context's graph as PyTorch would show it to its users.

Telegrad's send and recv nodes are not PyTorch's, and each received tensor has a node of its own in
PyTorch's graph. The view shows what PyTorch would have: a send node leads to the nodes of the sent
tensors, and all tensors of one message come from one recv node.
"""

from typing import Any

from telegrad.distributed.contexts.message_nodes import RecvNode, SendNode
from telegrad.interop.torch.bridge import Entry

_PREFIX = "torch::distributed::autograd::"


class SendFunction:
    """The send node of a message."""

    def __init__(self, node: SendNode) -> None:
        self._node = node

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """The nodes of the sent tensors, each with the tensor's output index."""
        edges = [each.edge if isinstance(each, Entry) else (each, 0) for each in self._node.edges]
        return tuple((view(node), number) for node, number, *_ in edges)

    def name(self) -> str:
        """Return what PyTorch names it."""
        return _PREFIX + self._node.name()


class RecvFunction:
    """The recv node of a message; equal to the ``grad_fn`` of each of its tensors."""

    next_functions: tuple[Any, ...] = ()

    def __init__(self, node: RecvNode) -> None:
        self._node = node

    def __eq__(self, other: object) -> bool:
        found = other if isinstance(other, RecvFunction) else view(other)
        return isinstance(found, RecvFunction) and found._node is self._node

    def __hash__(self) -> int:
        return hash(id(self._node))

    def name(self) -> str:
        """Return what PyTorch names it."""
        return _PREFIX + self._node.name()


class NodeView:
    """Any other node of PyTorch's graph, which may lead to recv nodes."""

    def __init__(self, node: Any) -> None:
        self._node = node

    def __eq__(self, other: object) -> bool:
        return (other._node if isinstance(other, NodeView) else other) is self._node

    def __hash__(self) -> int:
        return hash(self._node)

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """The nodes that it leads to, with output indices."""
        return tuple((view(node), number) for node, number in self._node.next_functions)

    @property
    def variable(self) -> Any:
        """The leaf whose gradient this node accumulates."""
        return self._node.variable

    def name(self) -> str:
        """Return what PyTorch names it."""
        return str(self._node.name())


def view(node: Any) -> Any:
    """Return the view of a node of PyTorch's graph; None for None."""
    if node is None:
        return None
    crossing = getattr(node, "crossing", None)
    if crossing is None:
        return NodeView(node)
    behind = [crossing.node, *crossing.node.edges]
    recv = next((each for each in behind if isinstance(each, RecvNode)), None)
    return NodeView(node) if recv is None else RecvFunction(recv)
