"""The contract of a node: all that a pass knows about a graph.

A node stands for one recorded value. Its *cotangent* is the derivative of what is being
differentiated with respect to that value. Running a node ("pull") turns its cotangent into one
contribution for each of its edges. An edge is the node of an input.

Three kinds of node differ in where a pass goes on from them:

- most *run*: ``tensors/recording/hooked.py`` has what they share;
- a *leaf* takes its gradient (``graph/leaf.py``). Leaves are tensors that implement this contract
  themselves, so a graph keeps its leaves alive, and no leaf and node refer to each other in a
  circle;
- at a *boundary* the cotangent leaves this engine, for another worker or another framework.

For one node a pass calls, in this order: ``before_capture``, ``before_run``, ``pull`` (or
``pull_recorded``), ``after``, ``release``. The calls about hooks are left out where ``hooks`` is
None.
"""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Protocol, TypeAlias

from telegrad.graph.hooks import NodeHooks

Cotangent: TypeAlias = Any
"""A raw array, a Tensor, or a Bundle of those: anything that ``+`` adds."""

Contributions: TypeAlias = Sequence[Cotangent | None]
"""What a node gives to its edges, one each; None where it gives nothing."""

next_key = count().__next__


class Node(Protocol):
    """What a pass asks of a node; see the module's docstring."""

    @property
    def edges(self) -> Sequence["Node"]:
        """The nodes of the inputs this one was computed from, in their order; ``()`` for a leaf.

        Read by every walk, and after the node has run, for where its contributions go.
        """

    @property
    def key(self) -> int:
        """The order of creation. An edge always points to a smaller key (a leaf's is -1).

        So a loop that runs nodes by falling key, as ``GraphTask`` does, runs each after everything
        that contributes to it. Both loops recognise leaves by it: ``is_leaf`` would cost a call.
        """

    @property
    def hooks(self) -> NodeHooks | None:
        """What users attached to the node, mostly None; both loops ask just before it runs."""

    @property
    def freed(self) -> bool:
        """Whether an earlier pass dropped the values that ``pull`` needs.

        Asked before a pass where the whole graph is here, and again after the node has run, since
        a pass of another thread may share it. Always True for a boundary.
        """

    @property
    def is_leaf(self) -> bool:
        """Whether a pass ends here with a gradient; asked where gradients are delivered."""

    @property
    def is_boundary(self) -> bool:
        """Whether the cotangent leaves this engine here; asked where a pass meets the node."""

    def name(self) -> str:
        """Return what errors, profiles and drawings call the node."""

    def pull(self, cotangent: Cotangent, /) -> Contributions:
        """Turn the complete cotangent into contributions; called by the loops, once a pass."""

    def pull_recorded(self, cotangent: Cotangent, /) -> Contributions:
        """Do the same on values that record, so that the results can be differentiated again.

        Called in place of ``pull`` in a pass with ``create_graph``.
        """

    def release(self) -> None:
        """Drop the saved values; called after the node has run, unless the graph is kept."""

    def before_capture(self, cotangent: Cotangent, /) -> Cotangent:
        """Run the hooks of the value; their result is the gradient that was asked for here.

        Called with the complete cotangent, before a target is delivered or a leaf takes it.
        """

    def before_run(self, cotangent: Cotangent, /) -> Cotangent:
        """Run the hooks of a node that is about to run, or a leaf about to accumulate."""

    def after(self, contributions: Contributions, cotangent: Cotangent, /) -> Contributions:
        """Run the hooks that see the contributions and may replace them; called after ``pull``."""

    def pass_by(self, cotangent: Cotangent, /) -> None:
        """Run the hooks of a target where ``backward`` ends: no input of it needs a gradient."""

    def explain(self, error: Exception, /) -> None:
        """Add to an error which node raised it, and where that was recorded."""


Deliver: TypeAlias = Callable[[Any, Cotangent, bool], None]
"""Takes a leaf or a target, its gradient, and whether nothing else refers to the gradient."""


class Boundary(Node, Protocol):
    """A node whose ``is_boundary`` is True."""

    def take_over(
        self,
        roots: dict[Any, Cotangent],
        deliver: Deliver,
        keep_graph: bool,
        recorded: bool,
        targets: dict[Any, Any] | None,
        /,
    ) -> None:
        """Run, in place of the local engine, a pass that has met this node.

        ``autograd.backward`` calls it before any node has run.
        """
