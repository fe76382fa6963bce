"""The nodes at the two ends of a message: where tensors left one worker and arrived at another.

A message has one id on both sides. The *send node* is at the sender: it receives gradients from
outside and passes them on to the nodes of the sent tensors. The *recv node* is at the receiver: its
cotangent leaves that worker. Where several tensors arrived, each is an output of the recv node.

A computed tensor that was sent outside of every context has no message. Its history stayed at the
sender, and the received tensor has a *cut node*: differentiating through it is an error.

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
"""The place in the program where a message was made: the ordinals of the calls that led there."""


class SendNode(HookedStruct, eq=False):
    """The tensors that one message carried away."""

    edges: tuple[Node, ...]
    key: int
    message_id: int
    path: Path
    peer: str
    """The worker that received them."""
    devices: tuple[str | None, ...] | None = None
    """The device of each tensor, and so of its gradient, unless all are on the CPU."""

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
    """The tensors that arrived in one message; `context` is the Context that recorded them."""

    key: int
    message_id: int
    path: Path
    peer: str
    """The worker that sent them."""
    size: int
    """The number of tensors."""
    context: Any

    @classmethod
    def join(
        cls, tensors: Sequence[Tensor], message_id: int, path: Path, peer: str, context: Any
    ) -> "RecvNode":
        """Return a new node with these tensors, just received and unused, as its outputs."""
        size = len(tensors)
        node = cls(next_key(), message_id, path, peer, size, context)
        if size == 1:
            tensors[0].node = node
        else:
            for i, tensor in enumerate(tensors):
                tensor.node = OutputNode((node,), next_key(), i, size)
        return node

    def parts_of(self, cotangent: Cotangent | None) -> Sequence[Cotangent | None]:
        """Return the gradient to send back for each tensor."""
        if cotangent is None:
            return (None,) * self.size
        return (cotangent,) if self.size == 1 else tuple(cotangent)

    def name(self) -> str:
        return "RecvRpcBackward"

    def take_over(self, *pass_: Any) -> None:
        """Take over a pass that began in this process alone; see ``Context.take_over``."""
        self.context.take_over(*pass_)

    def stray(self, context_id: int) -> ContextError:
        """Return the error for a pass of another context that reaches this node."""
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
        """Refuse a pass within this process that reached this node."""
        raise self.stray(0)

    def stray(self, context_id: int) -> ContextError:
        """Return the error for any pass that reaches this node."""
        return ContextError(
            "expected values that were recorded, but the backward pass reached a tensor that came "
            "from another worker outside of any context, without its history: gradients would be "
            "missing; make the call inside of `with telegrad.distributed.autograd.context()`, on "
            "the thread that entered it, or detach() the tensor where it is meant as a constant"
        )
