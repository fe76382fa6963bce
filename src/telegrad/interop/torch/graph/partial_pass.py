"""Passes of PyTorch's own towards chosen inputs: an error where they would leave out a part.

``torch.autograd.grad``, ``backward(inputs=...)`` and ``torch.autograd.functional`` have PyTorch run
the nodes that lead to their inputs. In its graph a value that came from another worker leads
nowhere, so what goes to an input over that worker would be missing from the gradient.

Most such passes are exact: that of an inner loop towards parameters that stayed here, say. So what
is refused is a value that answers a call in this context whose arguments depend on an input. Other
ways over a worker, such as a reference and ``to_here``, are not noticed.

The check stands in front of PyTorch's engine, since nothing else sees such a pass: PyTorch has no
hook for the start of a pass, runs no node that leads to none of the inputs, and so runs none of
ours. Outside of contexts, and in passes towards all leaves, it costs one look.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch.autograd.graph import GradientEdge

from telegrad.distributed.contexts.context import CURRENT
from telegrad.distributed.contexts.message_nodes import RecvNode
from telegrad.errors import GradientError
from telegrad.graph import reachable
from telegrad.interop.torch.bridge import Entry, accumulator_of
from telegrad.interop.torch.graph.walk import CROSSING
from telegrad.interop.torch.modes import run_ordinarily

_Engine: Any = type(torch.autograd.Variable._execution_engine)
_is_transforming: Any = torch._C._are_functorch_transforms_active
# Where `run_backward` has its inputs; a pass towards all leaves has none.
_INPUTS: Final = 4


class CheckingEngine(_Engine):  # type: ignore[misc]
    """PyTorch's engine, for those who call it by way of ``torch.autograd``."""

    def run_backward(self, *args: Any, **options: Any) -> Any:
        """Run a pass; towards chosen inputs, in a context, only if that is exact."""
        # A transform's tensors are never sent, and its passes are its own.
        if CURRENT.get() is not None and len(args) > _INPUTS and not _is_transforming():
            refuse_partial(args[0], args[_INPUTS])
        return super().run_backward(*args, **options)


def refuse_partial(roots: Sequence[Any], inputs: Sequence[Any]) -> None:
    """Raise GradientError if a root depends on an input by way of a call to another worker."""
    goals = set(_nodes_of(inputs))
    ahead, _ = _behind(_nodes_of(roots), goals, set()) if goals else ([], False)
    seen: set[Any] = set()
    while ahead:
        message = ahead.pop()
        if message in seen:
            continue
        seen.add(message)
        for node in _sent_for(message):
            if type(node) is RecvNode:
                ahead.append(node)
            elif type(node) is Entry:
                more, is_goal_met = _behind([node.edge.node], goals, seen)
                if is_goal_met:
                    raise GradientError(
                        "expected a graph of this process alone, but an input was sent to worker "
                        f"{message.peer!r}, and what that answered leads to the loss: PyTorch "
                        "would leave out this part of the gradient; write telegrad.distributed."
                        "autograd.grad(context_id, loss, inputs) instead, or detach() the answer "
                        "if it is meant as a constant"
                    )
                ahead += more


def _nodes_of(tensors: Iterable[Any]) -> Iterator[Any]:
    """Yield the nodes of tensors or edges; PyTorch itself refuses those that require no grad."""
    for each in tensors:
        if isinstance(each, GradientEdge):
            yield each.node
        elif each.requires_grad:
            yield each.grad_fn or run_ordinarily(partial(accumulator_of, each))


def _behind(starts: Iterable[Any], goals: set[Any], seen: set[Any]) -> tuple[list[RecvNode], bool]:
    """Return the messages that PyTorch's nodes lead to, and whether they lead to a goal.

    What lies behind a goal is not looked at.
    """
    messages: list[RecvNode] = []
    is_goal_met = False
    stack = list(starts)
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node in goals:
            is_goal_met = True
            continue
        if type(node) is CROSSING:
            behind = reachable([node.crossing.node])
            messages += [each for each in behind if type(each) is RecvNode]
        stack.extend([following for following, _ in node.next_functions])
    return messages, is_goal_met


def _sent_for(message: RecvNode) -> Iterator[Any]:
    """Yield the nodes behind what was sent with the call that the message answers."""
    for send in list(message.context.sends.values()):
        # An answer is made one step below its call: see `ProgramPoint`.
        if send.path == message.path[:-1]:
            yield from reachable(send.edges)


def install() -> None:
    """Have ``torch.autograd`` call the checking engine."""
    torch.autograd.Variable._execution_engine = CheckingEngine()
