"""The graph of a context as users of PyTorch's contexts look at it.

Telegrad's send and recv nodes are not PyTorch's, and each tensor that arrived has a node of its own
in PyTorch's graph. What is shown is what PyTorch would have there: a send leads to the nodes of the
tensors that were given away, and all that came in one message comes from one recv.
"""

from typing import Any

from telegrad.distributed.contexts.message_nodes import RecvNode, SendNode
from telegrad.interop.torch.bridge import Entry

_PREFIX = "torch::distributed::autograd::"


class SendFunction:
    """Where tensors were given away."""

    def __init__(self, node: SendNode) -> None:
        self._node = node

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """The nodes of the tensors, and which output of each a tensor is."""
        edges = [each.edge if isinstance(each, Entry) else (each, 0) for each in self._node.edges]
        return tuple((view(node), number) for node, number, *_ in edges)

    def name(self) -> str:
        """Return what PyTorch names it."""
        return _PREFIX + self._node.name()


class RecvFunction:
    """Where the tensors of a message arrived; equal to the ``grad_fn`` of each of them."""

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
    """Any other node of PyTorch's graph, which may lead to where something arrived."""

    def __init__(self, node: Any) -> None:
        self._node = node

    def __eq__(self, other: object) -> bool:
        return (other._node if isinstance(other, NodeView) else other) is self._node

    def __hash__(self) -> int:
        return hash(self._node)

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """Where it leads."""
        return tuple((view(node), number) for node, number in self._node.next_functions)

    @property
    def variable(self) -> Any:
        """The leaf whose gradient it accumulates."""
        return self._node.variable

    def name(self) -> str:
        """Return what PyTorch names it."""
        return str(self._node.name())


def view(node: Any) -> Any:
    """Return a node of PyTorch's graph as it is shown; None where there is none."""
    if node is None:
        return None
    crossing = getattr(node, "crossing", None)
    if crossing is None:
        return NodeView(node)
    behind = [crossing.node, *crossing.node.edges]
    recv = next((each for each in behind if isinstance(each, RecvNode)), None)
    return NodeView(node) if recv is None else RecvFunction(recv)
