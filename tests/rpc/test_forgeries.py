"""Frames that no worker sends, from a peer that has the key: they end its connection, no more."""

import socket
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from tests.rpc import simulated
from tests.rpc.neighbours import eventually, neighbours

from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.errors import ProtocolViolation
from telegrad.rpc.membership.membership import Membership
from telegrad.rpc.membership.rendezvous import Meeting
from telegrad.rpc.names import UNKNOWN_ID, WorkerInfo
from telegrad.rpc.options import Options
from telegrad.rpc.protocol.session import Session
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.transport import Identity, connect
from telegrad.rpc.wire.frames import CALL, HELLO, Frame
from telegrad.rpc.wire.slots import REFERENCE

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
    path(a, "b").send(Frame(HELLO, 0, 0, 0, encode((number, a.address, 1, 0))))
    assert eventually(lambda: f"'a' says that it is worker {number}" in caplog.text)
    assert b.rpc_sync(2, simulated.who) == "c"
    assert b.rpc_sync(1, simulated.who) == "b"
    assert c.rpc_sync("b", simulated.who) == "b"


def test_a_greeting_that_is_no_text_ends_the_connection(trio, caplog):
    a, _, c = trio
    hello = encode((0, "????", 1, 0)).replace(b"????", b"\xff\xfe\xfd\xfc")
    path(a, "b").send(Frame(HELLO, header=hello))
    assert eventually(lambda: "a malformed greeting came" in caplog.text)
    assert c.rpc_sync("b", simulated.who) == "b"


FIELDS = [7, 8, "b", 1, 1, True]


@pytest.mark.parametrize("place", range(6))
def test_a_reference_whose_fields_are_of_other_types_is_not_entered(trio, place):
    """Entered, it was found by whatever looked through the table: no loss was told any more."""
    a, b, c = trio
    told = []
    b.on_worker_lost(lambda who, why: told.append(who.name))
    for wrong in ("x", 1.5, None, b"x"):
        if type(wrong) is type(FIELDS[place]):
            continue
        fields = [*FIELDS[:place], wrong, *FIELDS[place + 1 :]]
        header = encode(["tests.rpc.simulated:who", None, [], [[REFERENCE, None, 0]], [fields]])
        with pytest.raises(ProtocolViolation, match="expected the fields of a reference"):
            b.codec.unseal(header, [], path(a, "b").limits, b.references.acceptor(path(b, "a")))
        path(a, "b").send(Frame(CALL, 0, 1000, 0, header))
        assert a.rpc_sync("b", simulated.who) == "b"
    assert b.references.counts() == {"owned": 0, "held": 0, "given": 0}
    path(c, "b")
    c.close()
    assert eventually(lambda: told == ["c"])


NONSENSE = [
    ("telegrad.references", [["add", "1", 2, False]]),
    ("telegrad.references", [["delete", 1]]),
    ("telegrad.references", ["delete", 1, 2]),
    ("telegrad.references", [[]]),
    ("telegrad.references", [7]),
    ("telegrad.references", 7),
    ("autograd.outcome", [1, 2, "yes", []]),
    ("autograd.release", [1]),
    ("autograd.release", 1),
    ("autograd.release", [1, ["b", 2]]),
    ("autograd.lease_held", "1"),
    ("autograd.level_closed", {}),
    ("autograd.level_held", [[]]),
]


@pytest.mark.parametrize(("service", "header"), NONSENSE)
def test_a_notice_that_no_worker_sends_ends_the_connection(trio, caplog, service, header):
    a, b, c = trio
    attach_autograd(b)
    a.notify_service("b", service, header)
    assert eventually(lambda: "a malformed notice came" in caplog.text)
    assert eventually(lambda: a.peers.get("b").outgoing is None)
    assert c.rpc_sync("b", simulated.who) == a.rpc_sync("b", simulated.who) == "b"


@pytest.fixture
def members():
    """Three workers that met at rank 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        meeting = Meeting(f"tcp://127.0.0.1:{probe.getsockname()[1]}", ClusterKey.fresh())
    with ThreadPoolExecutor() as threads:
        joining = [
            threads.submit(Membership, name, rank, 3, Options(), meeting, lambda _: None)
            for rank, name in enumerate(["ps", "t0", "t1"])
        ]
        met = [each.result(60) for each in joining]
    yield [each.worker for each in met]
    for each in met:
        each.close()


def test_nobody_but_rank_0_says_that_a_worker_came_or_left(members):
    ps, t0, t1 = members
    for name, rank in (("ps", 0), ("t0", 1), ("new", 2)):
        with pytest.raises(
            ProtocolViolation, match=r"'t0' announces who came .*; only rank 0 does"
        ):
            came = {"type": "came", "card": [name, rank, 3, "unix:///elsewhere", 5]}
            t0.ask_service("t1", "telegrad.changed", came)
    with pytest.raises(Exception, match="Expected `str`"):
        ps.ask_service("t1", "telegrad.changed", {"type": "came", "card": [None] * 5})
    assert [peer.info.name for peer in t1.peers.all()] == ["ps", "t0", "t1"]
    assert t1.rpc_sync("ps", simulated.who) == "ps"


def test_who_comes_under_ever_new_names_and_says_nothing_is_forgotten(trio):
    a = trio[0]
    known = len(a.peers.all())
    for number in range(20):
        stranger = Identity(f"stranger{number}", 1, a.host.identity.key)
        connection = connect(a.address, identity=stranger, expect="a")
        assert eventually(lambda name=stranger.name: a.peers.get(name) is not None)
        connection.close()
    assert eventually(lambda: len(a.peers.all()) == known)


def test_of_ever_new_incarnations_of_a_worker_the_last_are_remembered():
    peer = Session(WorkerInfo("b", 1, 0))
    for incarnation in range(3000):
        peer.named(WorkerInfo("b", 1, incarnation), "unix:///b.sock")
    assert len(peer.past) == 1000
    assert 2998 in peer.past
    assert peer.info.incarnation == 2999
