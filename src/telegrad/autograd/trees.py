"""Nested tuples, lists and dicts of tensors, taken apart and put together again.

The structure of a tree is the same tree with numbers for its leaves. None stands for no value and
is kept as it is. Dicts are walked in the order of their keys' insertion.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

__all__ = ["Tree", "flatten", "map_leaves", "same_structure", "unflatten"]

Tree: TypeAlias = Any
"""A leaf, or a tuple, list or dict of trees."""
_BRANCHES = (dict, tuple, list)


def map_leaves(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """The same structure with the function applied to each leaf."""
    if not isinstance(tree, _BRANCHES):
        return None if tree is None else function(tree)
    if isinstance(tree, dict):
        return {key: map_leaves(function, part) for key, part in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_leaves(function, part) for part in tree))
    parts = [map_leaves(function, part) for part in tree]
    return parts if isinstance(tree, list) else tuple(parts)


def flatten(tree: Tree) -> tuple[list[Any], Tree]:
    """The leaves in order, and the structure that ``unflatten`` takes."""
    leaves: list[Any] = []

    def number(leaf: Any) -> int:
        leaves.append(leaf)
        return len(leaves) - 1

    return leaves, map_leaves(number, tree)


def unflatten(structure: Tree, leaves: Sequence[Any]) -> Tree:
    """The tree of this structure with these leaves."""
    return map_leaves(leaves.__getitem__, structure)


def same_structure(one: Tree, other: Tree) -> bool:
    """Whether two structures nest alike; a tuple and a list of equal parts do."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            same_structure(one[key], other[key]) for key in one
        )
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(map(same_structure, one, other))
    return type(one) is type(other)
