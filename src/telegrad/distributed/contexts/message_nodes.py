"""Where a value left this worker, and where one arrived: the nodes at the two ends of a message.

A message has one id on both sides. The *send node* stands where tensors were given away: gradients
for it come from outside, and run on to the nodes of those tensors. The *recv node* stands where
they arrived: its cotangent leaves this worker. Where several arrived, each is an output of it.

What was computed and then sent outside of every context has no message. Its history stayed where
it was, and a *cut node* stands for that: to differentiate through it is an error.

Pure data: nothing here sends anything.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from telegrad.arrays.devices import placed
from telegrad.errors import ContextError
from telegrad.graph import Cotangent, Node, next_key
from telegrad.tensors import Tensor
from telegrad.tensors.recording.hooked import BoundaryStruct, HookedStruct
from telegrad.tensors.recording.op_node import OutputNode

Path = tuple[int, ...]
"""Where in the program a message was made: the ordinals of the calls that led there."""


class SendNode(HookedStruct, eq=False):
    """Tensors that were given away in one message."""

    edges: tuple[Node, ...]
    key: int
    message_id: int
    path: Path
    peer: str
    """The worker that got them."""
    devices: tuple[str | None, ...] | None = None
    """Where each is, if any of them is not on the CPU: there its gradient has to be."""

    freed: ClassVar[bool] = False

    def name(self) -> str:
        return "SendRpcBackward"

    def pull(self, cotangent: Cotangent) -> Sequence[Cotangent | None]:
        if self.devices is None:
            return tuple(cotangent)
        return [_beside(part, device) for part, device in zip(cotangent, self.devices)]

    pull_recorded = pull


def _beside(part: Any, device: str | None) -> Any:
    if part is None or device is None:
        return part
    return part.to_device(device) if isinstance(part, Tensor) else placed(part, device)


class RecvNode(BoundaryStruct, eq=False):
    """Tensors that arrived in one message; `context` is the Context that recorded them."""

    key: int
    message_id: int
    path: Path
    peer: str
    """The worker that gave them away."""
    size: int
    """How many tensors arrived."""
    context: Any

    @classmethod
    def join(
        cls, tensors: Sequence[Tensor], message_id: int, path: Path, peer: str, context: Any
    ) -> "RecvNode":
        """Return a node whose outputs these tensors become, which arrived and nobody has seen."""
        size = len(tensors)
        node = cls(next_key(), message_id, path, peer, size, context)
        if size == 1:
            tensors[0].node = node
        else:
            for i, tensor in enumerate(tensors):
                tensor.node = OutputNode((node,), next_key(), i, size)
        return node

    def parts_of(self, cotangent: Cotangent | None) -> Sequence[Cotangent | None]:
        """Return what goes back for each tensor that arrived."""
        if cotangent is None:
            return (None,) * self.size
        return (cotangent,) if self.size == 1 else tuple(cotangent)

    def name(self) -> str:
        return "RecvRpcBackward"

    def take_over(self, *pass_: Any) -> None:
        """Run a pass that began as one of this process alone; see ``Context.take_over``."""
        self.context.take_over(*pass_)

    def stray(self, context_id: int) -> ContextError:
        """Return the error of a pass of another context that reaches it."""
        return ContextError(
            f"expected tensors recorded in context {context_id}, got one that arrived in context "
            f"{self.context.id}; use one context for the whole of a forward pass, and detach() "
            "what one step keeps for the next"
        )


class CutNode(BoundaryStruct, eq=False):
    """A computed tensor that arrived outside of every context, without its history."""

    key: int

    context: ClassVar[None] = None

    def name(self) -> str:
        return "UnrecordedRpcBackward"

    def take_over(self, *pass_: Any) -> None:
        """Refuse a pass of this process alone that reached it."""
        raise self.stray(0)

    def stray(self, context_id: int) -> ContextError:
        """Return the error of any pass that reaches it."""
        return ContextError(
            "expected values that were recorded, but the backward pass reached a tensor that came "
            "from another worker outside of any context, without its history: gradients would be "
            "missing; make the call inside of `with telegrad.distributed.autograd.context()`, on "
            "the thread that entered it, or detach() the tensor where it is meant as a constant"
        )
