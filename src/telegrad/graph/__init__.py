"""What is recorded: nodes, the edges between them, and the hooks that hang on them.

Pure data. Nothing here computes a derivative, knows an operation or knows a Tensor.
"""

from telegrad.graph.addition import added
from telegrad.graph.bundle import Bundle
from telegrad.graph.hooks import Handle, NodeHooks, hooks_of
from telegrad.graph.leaf import LEAF, LeafNode
from telegrad.graph.node import Boundary, Contributions, Cotangent, Deliver, Node, next_key
from telegrad.graph.traversal import reachable

__all__ = [
    "LEAF",
    "Boundary",
    "Bundle",
    "Contributions",
    "Cotangent",
    "Deliver",
    "Handle",
    "LeafNode",
    "Node",
    "NodeHooks",
    "added",
    "hooks_of",
    "next_key",
    "reachable",
]
