"""What every leaf is to a pass: a node without edges, which nothing runs."""

from typing import Any, ClassVar, Final

from telegrad.graph.node import Contributions, Cotangent


class LeafNode:
    """Mixed into all that ends a pass and takes a gradient; see ``graph.node`` for the members."""

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
        # What failed is a hook of it, which the traceback shows.
        pass


LEAF: Final[Any] = LeafNode()
"""In the place of a value's node: the value is a leaf, and its own node."""
