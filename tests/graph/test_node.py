"""Every kind of node keeps the one contract: mypy compares the types, a test the names."""

import pytest
from tests.engine.fakes import FakeLeaf, FakeNode

import telegrad
from telegrad.autograd.function.node import FunctionNode, RefusingNode
from telegrad.distributed.contexts.message_nodes import CutNode, RecvNode, SendNode
from telegrad.errors import InternalError
from telegrad.graph import Boundary, Node, next_key
from telegrad.interop.torch.bridge import Entry
from telegrad.interop.torch.graph.ends import Landing, Leaf, Tap
from telegrad.interop.torch.graph.region import Region
from telegrad.tensors import Tensor
from telegrad.tensors.recording.link_node import LinkNode
from telegrad.tensors.recording.op_node import OpNode as OpNode
from telegrad.tensors.recording.op_node import OutputNode

BOUNDARIES: list[type[Boundary]] = [RecvNode, CutNode, Entry]
LEAVES: list[type[Node]] = [Tensor, Leaf, Tap]
OTHERS: list[type[Node]] = [
    OpNode,
    OutputNode,
    LinkNode,
    FunctionNode,
    RefusingNode,
    SendNode,
    Region,
    Landing,
]
FAKES: list[type[Node]] = [FakeNode, FakeLeaf]
"""For mypy alone: instances of these get some members when they are made."""

MEMBERS = [name for name in vars(Node) if not name.startswith("_")]


@pytest.mark.parametrize("kind", [*BOUNDARIES, *LEAVES, *OTHERS], ids=lambda kind: kind.__name__)
def test_a_kind_of_node_has_every_member_of_the_contract(kind: type[Node]) -> None:
    assert [member for member in MEMBERS if not hasattr(kind, member)] == []


def test_a_leaf_is_older_than_every_node_and_gives_nothing() -> None:
    x = telegrad.tensor(1.0, requires_grad=True)
    assert x.key < 0 <= next_key()
    assert (x.edges, x.pull(1.0), x.pull_recorded(1.0)) == ((), (), ())


def test_a_boundary_refuses_to_run() -> None:
    with pytest.raises(InternalError, match="cotangent of UnrecordedRpcBackward to leave"):
        CutNode(next_key()).pull(1.0)
