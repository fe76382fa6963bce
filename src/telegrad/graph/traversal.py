"""Walking a graph without recursion."""

from collections.abc import Iterable
from operator import attrgetter

from telegrad.graph.node import Node

_by_key = attrgetter("key")


def reachable(entries: Iterable[Node]) -> list[Node]:
    """Return every node that the entries reach, each once, newest first."""
    stack = list(entries)
    seen = dict.fromkeys(stack)
    while stack:
        for edge in stack.pop().edges:
            if edge not in seen:
                seen[edge] = None
                stack.append(edge)
    return sorted(seen, key=_by_key, reverse=True)
