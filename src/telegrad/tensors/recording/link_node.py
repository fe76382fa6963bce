"""A recorded gradient that refers to an input without depending on it.

The gradient of a linear function is the same wherever it is taken, so nothing connects it with the
input. In PyTorch, some functions connect them all the same, so that differentiating the gradient by
the input gives zeros, or None, instead of an error. The primitives of those functions say so
(``Primitive.by_itself``), and their nodes link the gradients that they record.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from telegrad.arrays import backend_of
from telegrad.graph import Cotangent, Node, next_key
from telegrad.tensors.late_bound import late_bound
from telegrad.tensors.recording.hooked import HookedStruct
from telegrad.tensors.tensor import Tensor, history_of, wrap


class LinkNode(HookedStruct, eq=False):
    """Passes the cotangent on to the history of the gradient, if it has one."""

    edges: tuple[Node, ...]
    """The history of the gradient, if it has one, and then the input."""
    key: int
    origin: str
    gives_zeros: bool

    freed: ClassVar[bool] = False

    def name(self) -> str:
        return f"{self.origin}Backward"

    def pull(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        echo = None
        if self.gives_zeros:
            is_tensor = isinstance(cotangent, Tensor)
            echo = (late_bound.namespace if is_tensor else backend_of(cotangent)).zeros_like(
                cotangent
            )
        return (cotangent, echo)[-len(self.edges) :]

    pull_recorded = pull


def link(gradient: Tensor, edge: Any, origin: str, gives_zeros: bool) -> Tensor:
    """Return `gradient`, linked with the input whose gradient it is, which has the node `edge`."""
    history = history_of(gradient)
    edges = (edge,) if history is None else (history, edge)
    node = LinkNode(edges, next_key(), origin, gives_zeros)
    return wrap(gradient.array, node, gradient.tangents)
