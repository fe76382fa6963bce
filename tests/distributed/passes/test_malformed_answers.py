"""Answers to the messages of a pass that no worker sends, from a peer that has the key."""

import pytest
from tests.rpc.neighbours import neighbours

import telegrad as tg
from telegrad.distributed import autograd
from telegrad.distributed.current import autograd_of
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.errors import ProtocolViolation
from telegrad.rpc.calls.service import ServiceRequest
from telegrad.rpc.current import set_default_worker


def double(x):
    return 2 * x


@pytest.fixture
def pair():
    with neighbours("a", "b") as (a, b):
        attach_autograd(a)
        attach_autograd(b)
        before = set_default_worker(a)
        yield a, b
        set_default_worker(before)


@pytest.mark.parametrize(
    "said",
    [
        None,
        7,
        "abc",
        [1, 2],
        [{}, 5, []],
        [[], [], []],
        [{}, ["b"], 5],
        [{}, ["b"], [[1]]],
        [{}, ["b"], [[1, 1, [5], None, None]]],
        [{}, ["b"], [[{}, 0, [], None, None]]],
    ],
)
def test_a_malformed_answer_of_a_pass_ends_it_and_the_connection(pair, monkeypatch, said):
    a, _ = pair
    honest = ServiceRequest.reply

    def forge(request, header=None, content=()):
        honest(request, said if request.frm == a.info else header, content)

    with autograd.context() as context_id:
        x = tg.tensor([1.0, 2.0], requires_grad=True)
        y = a.rpc_sync("b", double, (x,))
        path = a.peers.get("b").outgoing
        with monkeypatch.context() as patch:
            patch.setattr(ServiceRequest, "reply", forge)
            with pytest.raises(ProtocolViolation, match=r"'b' answered .* as no worker does"):
                autograd.backward(context_id, [y.sum()])
        assert path.closed
    with autograd.context() as context_id:
        autograd.backward(context_id, [a.rpc_sync("b", double, (x,)).sum()])
        assert autograd.get_gradients(context_id)[x].numpy().tolist() == [2.0, 2.0]


@pytest.mark.parametrize("size", [10**12, -1, 0, 2, "x", None, True])
def test_the_size_of_a_gradients_entry_is_compared_before_it_is_allocated(pair, monkeypatch, size):
    a, _ = pair
    honest = ServiceRequest.reply

    def forge(request, header=None, content=()):
        if request.frm == a.info:
            (message_id,) = autograd_of(a).contexts.get(context_id).sends
            header = [{}, ["b"], [[message_id, size, [], None, None, None]]]
        honest(request, header, content)

    with autograd.context() as context_id:
        x = tg.tensor([1.0, 2.0], requires_grad=True)
        y = a.rpc_sync("b", double, (x,))
        monkeypatch.setattr(ServiceRequest, "reply", forge)
        with pytest.raises(ProtocolViolation, match=r"as no worker does|expected gradients for 1"):
            autograd.backward(context_id, [y.sum()])
        monkeypatch.undo()
