"""The two ends of a message as nodes of PyTorch's graph, for those who look at a context.

Telegrad's send and recv nodes are not PyTorch's. What users of PyTorch's contexts look at is where
they lead: a send to the nodes of the tensors that were given away, a recv to nothing.
"""

from typing import Any

from telegrad.distributed.nodes import RecvNode, SendNode
from telegrad.interop.torch_bridge import Entry

__all__ = ["RecvFunction", "SendFunction"]

_PREFIX = "torch::distributed::autograd::"


class SendFunction:
    """Where tensors were given away."""

    def __init__(self, node: SendNode) -> None:
        self._node = node

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """The nodes of the tensors, and which output of each a tensor is."""
        return tuple(
            (each.edge.node, each.edge.output_nr) if isinstance(each, Entry) else (each, 0)
            for each in self._node.edges
        )

    def name(self) -> str:
        """As PyTorch names it."""
        return _PREFIX + self._node.name()


class RecvFunction:
    """Where tensors arrived; equal to the ``grad_fn`` of each of them."""

    next_functions: tuple[Any, ...] = ()

    def __init__(self, node: RecvNode) -> None:
        self._node = node

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RecvFunction):
            return self._node is other._node
        crossing = getattr(other, "crossing", None)
        if crossing is None:
            return NotImplemented
        return bool(crossing.node is self._node or self._node in crossing.node.edges)

    def __hash__(self) -> int:
        return hash(id(self._node))

    def name(self) -> str:
        """As PyTorch names it."""
        return _PREFIX + self._node.name()
