"""Frames that no worker sends, from a peer that has the key: they end its connection, no more."""

import msgspec
import pytest
from tests.rpc import simulated
from tests.rpc.neighbours import eventually, neighbours

from telegrad.rpc.names import UNKNOWN_ID
from telegrad.rpc.wire.frames import HELLO

encode = msgspec.msgpack.encode


@pytest.fixture
def trio():
    with neighbours("a", "b", "c") as workers:
        yield workers


def path(frm, to):
    """Return the path on which `frm` makes its requests to `to`."""
    assert frm.rpc_sync(to, simulated.who) == to
    return frm.peers.get(to).outgoing


@pytest.mark.parametrize("number", [1, 2, UNKNOWN_ID, UNKNOWN_ID + 1, -1])
def test_a_peer_that_greets_with_an_id_that_is_not_its_own_is_cut_off(trio, caplog, number):
    a, b, c = trio
    path(a, "b").send(HELLO, 0, 0, 0, encode((number, a.address)))
    assert eventually(lambda: f"'a' says that it is worker {number}" in caplog.text)
    assert b.rpc_sync(2, simulated.who) == "c"
    assert b.rpc_sync(1, simulated.who) == "b"
    assert c.rpc_sync("b", simulated.who) == "b"


def test_a_greeting_that_is_no_text_ends_the_connection(trio, caplog):
    a, _, c = trio
    path(a, "b").send(HELLO, 0, 0, 0, encode((0, "????")).replace(b"????", b"\xff\xfe\xfd\xfc"))
    assert eventually(lambda: "a malformed greeting came" in caplog.text)
    assert c.rpc_sync("b", simulated.who) == "b"
