"""Flatten and rebuild nested tuples, lists and dicts of tensors.

The structure of a tree is the same tree with numbers for its leaves. None stands for no value and
is kept as it is. Dicts are walked in the order of their keys' insertion.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

Tree: TypeAlias = Any
"""A leaf, or a tuple, list or dict of trees."""
_BRANCHES = (dict, tuple, list)


def map_leaves(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """Return the same structure with the function applied to each leaf."""
    if not isinstance(tree, _BRANCHES):
        return None if tree is None else function(tree)
    if isinstance(tree, dict):
        return {key: map_leaves(function, part) for key, part in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_leaves(function, part) for part in tree))
    parts = [map_leaves(function, part) for part in tree]
    return parts if isinstance(tree, list) else tuple(parts)


def flatten(tree: Tree) -> tuple[list[Any], Tree]:
    """Return the leaves in order, and the structure that ``unflatten`` takes."""
    leaves: list[Any] = []

    def number(leaf: Any) -> int:
        leaves.append(leaf)
        return len(leaves) - 1

    return leaves, map_leaves(number, tree)


def unflatten(structure: Tree, leaves: Sequence[Any]) -> Tree:
    """Return the tree of this structure with these leaves."""
    return map_leaves(leaves.__getitem__, structure)


def leaves_along(structure: Tree, tree: Tree) -> list[Any] | None:
    """Return the leaves of a tree in the order of this structure's; None where it nests otherwise.

    A tuple and a list of equal parts nest alike, and so do dicts of the same keys in any order.
    """
    pairs: Iterable[tuple[Tree, Tree]]
    if isinstance(structure, dict):
        if not isinstance(tree, dict) or tree.keys() != structure.keys():
            return None
        pairs = [(part, tree[key]) for key, part in structure.items()]
    elif isinstance(structure, (tuple, list)):
        if not isinstance(tree, (tuple, list)) or len(tree) != len(structure):
            return None
        pairs = zip(structure, tree)
    elif structure is None or tree is None or isinstance(tree, _BRANCHES):
        return [] if structure is tree else None
    else:
        return [tree]
    leaves: list[Any] = []
    for part, given in pairs:
        found = leaves_along(part, given)
        if found is None:
            return None
        leaves += found
    return leaves
