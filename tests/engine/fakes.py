"""Nodes that know nothing but the protocol of ``graph.node``: numbers for cotangents, no Tensor."""

from collections.abc import Callable, Sequence
from typing import Any

from telegrad.graph import LeafNode, NodeHooks, next_key

__all__ = ["FakeLeaf", "FakeNode", "Log"]


class Log:
    """What happened in a pass: the nodes that ran, in order, and what was delivered or departed."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.delivered: dict[str, Any] = {}
        self.departed: dict[str, Any] = {}

    def deliver(self, node: Any, gradient: Any, is_alone: bool) -> None:
        assert node.name() not in self.delivered, "a gradient is delivered once"
        self.delivered[node.name()] = gradient

    def depart(self, node: Any, cotangent: Any) -> bool:
        self.departed[node.name()] = cotangent
        return True


class FakeNode:
    """Multiplies its cotangent by one weight for each edge; None is no contribution."""

    is_leaf = False

    def __init__(
        self,
        label: str,
        edges: Sequence[Any] = (),
        weights: Sequence[Any] | None = None,
        *,
        log: Log | None = None,
        pull: Callable[[Any], Sequence[Any]] | None = None,
        is_boundary: bool = False,
    ) -> None:
        self.label = label
        self.edges = tuple(edges)
        self.weights = (1,) * len(self.edges) if weights is None else tuple(weights)
        self.log = log
        self.key = next_key()
        self.hooks: NodeHooks | None = None
        self.freed = False
        self.is_boundary = is_boundary
        self._pull = pull

    def name(self) -> str:
        return self.label

    def pull(self, cotangent: Any, /) -> Sequence[Any]:
        if self.log is not None:
            self.log.ran.append(self.label)
        if self._pull is not None:
            return self._pull(cotangent)
        return [None if w is None else cotangent * w for w in self.weights]

    def pull_recorded(self, cotangent: Any, /) -> Sequence[Any]:
        return [("recorded", each) for each in self.pull(cotangent)]

    def release(self) -> None:
        self.freed = True

    def before_capture(self, cotangent: Any, /) -> Any:
        return cotangent

    def before_run(self, cotangent: Any, /) -> Any:
        return cotangent

    def after(self, contributions: Sequence[Any], cotangent: Any, /) -> Sequence[Any]:
        return contributions

    def pass_by(self, cotangent: Any, /) -> None:
        pass

    def explain(self, error: Exception, /) -> None:
        error.add_note(f"while {self.label} ran")


class FakeLeaf(LeafNode):
    """Where a pass ends."""

    is_leaf = True

    def __init__(self, label: str) -> None:
        self.label = label
        self.hooks: NodeHooks | None = None

    def name(self) -> str:
        return self.label
