"""A leaf as a pass sees it: a node without edges, which nothing runs."""

from typing import Any, ClassVar, Final

from telegrad.graph.node import Contributions, Cotangent


class LeafNode:
    """A mixin for whatever ends a pass and takes a gradient; ``graph.node`` has the members."""

    __slots__ = ()

    edges: ClassVar[tuple[()]] = ()
    key: ClassVar[int] = -1
    freed: ClassVar[bool] = False
    is_boundary: ClassVar[bool] = False

    def pull(self, cotangent: Cotangent, /) -> Contributions:
        return ()

    pull_recorded = pull

    def release(self) -> None:
        pass

    def before_capture(self, cotangent: Cotangent, /) -> Cotangent:
        return cotangent

    def before_run(self, cotangent: Cotangent, /) -> Cotangent:
        return cotangent

    def after(self, contributions: Contributions, cotangent: Cotangent, /) -> Contributions:
        return contributions

    def pass_by(self, cotangent: Cotangent, /) -> None:
        pass

    def explain(self, error: Exception, /) -> None:
        # Only a hook of a leaf can fail, and the traceback shows it.
        pass


LEAF: Final[Any] = LeafNode()
"""Stands where a value has its node: the value is a leaf, and so its own node."""
