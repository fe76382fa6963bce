"""AccumulateGrad: what stands for a leaf where users walk the nodes of a graph."""

from collections.abc import Callable
from typing import Any, ClassVar

from telegrad.graph import Handle, hooks_of


class AccumulateGrad:
    """A leaf as ``next_functions`` shows it: the place where its gradient accumulates."""

    __slots__ = ("variable",)

    metadata: ClassVar[None] = None

    def __init__(self, variable: Any) -> None:
        self.variable = variable

    def name(self) -> str:
        return "AccumulateGrad"

    @property
    def next_functions(self) -> tuple[()]:
        return ()

    def register_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call ``hook((), (gradient,))`` after the leaf has accumulated the gradient."""
        return Handle(hooks_of(self.variable).after, hook)

    def register_prehook(self, hook: Callable[..., Any]) -> Handle:
        """Call ``hook((gradient,))`` before the leaf accumulates."""
        return Handle(hooks_of(self.variable).before, hook)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AccumulateGrad) and other.variable is self.variable

    def __hash__(self) -> int:
        return hash(self.variable)
