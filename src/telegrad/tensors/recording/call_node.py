"""The node of one recorded call of a function that is no primitive: what all such nodes share."""

import weakref
from typing import Any

from telegrad.graph import Node, NodeHooks, next_key
from telegrad.tensors.recording.hooked import Hooked
from telegrad.tensors.recording.op_node import OutputNode


class CallNode(Hooked):
    """A node with any number of results; derived classes pull, and fill `outputs` in."""

    __slots__ = (
        "__weakref__",
        "edges",
        "freed",
        "hooks",
        "key",
        "known",
        "metadata",
        "outputs",
        "wanted",
    )

    def __init__(self, edges: tuple[Node, ...], wanted: tuple[int, ...]) -> None:
        self.edges = edges
        self.wanted = wanted
        """Which argument each edge stands for."""
        self.outputs: tuple[Any, ...] = ()
        """For each result what its zeros are made of; None for a result without a derivative."""
        self.known: list[weakref.ref[OutputNode]] | None = None
        self.key = next_key()
        self.hooks: NodeHooks | None = None
        self.freed = False
        self.metadata: dict[str, Any] | None = None

    def output_count(self) -> int:
        """Return how many results there are."""
        return len(self.outputs)

    def of_output(self, index: int) -> Any:
        """Return the node of one result: this one where it is the only one."""
        return self if len(self.outputs) == 1 else OutputNode.of(self, index)
