"""Answers that no worker sends, from a peer that has the key: ProtocolViolation, and the end."""

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.rpc import simulated
from tests.rpc.neighbours import eventually, neighbours

from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.errors import PeerError, ProtocolViolation, Refused, Unserializable
from telegrad.rpc.calls.call import Call
from telegrad.rpc.options import Options
from telegrad.rpc.wire import kinds
from telegrad.rpc.wire.frames import ANSWER, FAILURE, Frame

encode = msgspec.msgpack.encode
FOREVER = 1e18


@pytest.fixture
def pair():
    with neighbours("a", "b") as workers:
        for worker in workers:
            attach_autograd(worker)
        yield workers


def answer(a, b, call, header, buffers=()):
    """Let b answer the call of a with this header."""
    assert eventually(lambda: bool(b.peers.get("a").incoming))
    path = b.peers.get("a").incoming
    path.send(Frame(ANSWER, 0, call.number, 0, header, buffers))


# function, extra, arrays, entries, references, form, items, where, names
NOTHING = [None, None, [], None, None, 0, [7], [], None]
ARRAY = [12, b"\0" * 8, [1]]


def with_slot(entry: Any, *arrays: Any) -> list[Any]:
    return [None, None, list(arrays), [entry], None, 0, [None], [0], None]


MALFORMED = {
    "an empty map as a slot": with_slot({}),
    "a slot of nothing": with_slot([]),
    "a tensor of no arrays": with_slot(["telegrad.Tensor", 1, 0]),
    "a tensor of more arrays than came": with_slot(["telegrad.Tensor", 1, 2], ARRAY),
    "a tensor whose array is a map": with_slot(["telegrad.Tensor", 1, 1], {}),
    "a dual without facts": with_slot(["telegrad.CarriedDual", 5, 0]),
    "no result": [None, None, []],
    "a pickle that is not there": [None, None, [], None, None, 2],
    "no header": 5,
}


@pytest.mark.parametrize("header", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_answer_is_a_violation_and_ends_the_connection(pair, header, caplog):
    a, b = pair
    call = a.rpc_async("b", simulated.never)
    path = a.peers.get("b").outgoing
    answer(a, b, call, encode(header))
    with pytest.raises(ProtocolViolation):
        call.wait(10)
    assert eventually(lambda: path.closed)
    assert "closed the connection" in caplog.text
    # Another one is opened.
    assert a.rpc_sync("b", simulated.who) == "b"


@pytest.mark.parametrize("extra", [5, "x", [], [1], [1, [0]], [[], [0], [0]], [1, [3], [0]]])
def test_what_no_worker_tells_of_the_values_of_an_answer_ends_the_connection(pair, extra):
    a, b = pair
    call = a.rpc_async("b", simulated.never)
    # As if a context had been open.
    call.extra = [a.next_id(), 0]
    path = a.peers.get("b").outgoing
    tensor = ["telegrad.Tensor", 1, 1]
    answer(a, b, call, encode([None, extra, [ARRAY, ARRAY], [tensor, tensor], None, 1]))
    with pytest.raises(ProtocolViolation, match="'b' told of the values of an answer what no"):
        call.wait(10)
    assert eventually(lambda: path.closed)


def test_what_a_users_own_type_raises_is_the_users_and_ends_nothing(pair, monkeypatch):
    for name in ("_by_type", "_by_tag", "_found"):
        monkeypatch.setattr(kinds, name, dict(getattr(kinds, name)))

    class Odd:
        pass

    def refuse(parts: list[Any], metadata: Any) -> Odd:
        raise LookupError("an odd one")

    kinds.register(Odd, lambda odd: ([np.ones(1)], None), refuse, tag="tests.Refusing")
    a, b = pair
    call = a.rpc_async("b", simulated.never)
    path = a.peers.get("b").outgoing
    answer(a, b, call, encode(with_slot(["tests.Refusing", None, 0])))
    with pytest.raises(LookupError, match="an odd one"):
        call.wait(10)
    assert not path.closed


# Whatever part of an answer is replaced.

PALETTE = [None, 0, -1, 2**63, "x", b"x", [], [1], {}, {"a": 1}, 1.5, [[]], "telegrad.x"]


def mutants(tree: Any) -> Iterator[Any]:
    yield from PALETTE
    if isinstance(tree, list):
        for i, item in enumerate(tree):
            yield tree[:i] + tree[i + 1 :]
            yield from (tree[:i] + [mutant] + tree[i + 1 :] for mutant in mutants(item))


SOUND = {
    "flat": NOTHING,
    "tuple": [None, None, [], None, None, 1, [7, 8], [], None],
    "plain": [None, None, [], None, None, 3, [1, [2, 3]], [], None],
    "array": [None, None, [ARRAY]],
    "tensor": with_slot(["telegrad.Tensor", 1, 1], ARRAY),
    "parameter": with_slot(["telegrad.nn.Parameter", 1, 1], ARRAY),
    "dual": with_slot(["telegrad.CarriedDual", [[[5, []]], 1], 2], ARRAY, ARRAY),
    "of a context": [None, [3, [0], [1]], [ARRAY], None, None, 0, [None], [0], None],
}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", SOUND)
def test_whatever_is_replaced_in_an_answer_it_is_read_or_a_violation(name, strict):
    with neighbours("a", "b", options=Options(strict=strict)) as (a, b):
        attach_autograd(a)
        attach_autograd(b)
        path = a.path_to(a.find("b"), FOREVER)
        for mutant in mutants(SOUND[name]):
            for extra in (None, [5, 0]):
                settled = settle(a, path, mutant, extra)
                if not isinstance(settled, PeerError | Unserializable | Refused):
                    assert settled is None, (mutant, settled)


def settle(worker, path, header, extra) -> BaseException | None:
    call = Call(worker, path, FOREVER, "a call")
    call.extra = extra
    call.number = path.calls.begin(call)
    try:
        data = encode(header)
        worker.outgoing.answered(path, Frame(ANSWER, 0, call.number, 0, data, []))
    except ProtocolViolation:
        pass
    return call.exception()


def test_a_failure_whose_text_is_none_is_a_violation(pair):
    a, b = pair
    call = a.rpc_async("b", simulated.never)
    assert eventually(lambda: bool(b.peers.get("a").incoming))
    b.peers.get("a").incoming.send(Frame(FAILURE, 0, call.number, 0, encode([None] * 7)))
    with pytest.raises(ProtocolViolation, match="a malformed failure came"):
        call.wait(10)
