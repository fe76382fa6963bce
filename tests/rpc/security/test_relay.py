"""Another user of the machine, who has no key, holds the port that a worker dials.

Each test relays a handshake to a real listener and tries to speak in the names of both.
"""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from tests.rpc import simulated
from tests.rpc.neighbours import eventually
from tests.rpc.relay import Relay

from telegrad.errors import AuthenticationFailed, PeerError
from telegrad.rpc.membership.card import Card
from telegrad.rpc.membership.membership import Membership
from telegrad.rpc.membership.rendezvous import Meeting, Rendezvous, join
from telegrad.rpc.options import Options
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.startup import start_worker
from telegrad.rpc.transport import Identity
from telegrad.rpc.transport.address import parse_address
from telegrad.rpc.wire.frames import ANSWER, CALL, HELLO, pack

KEY = ClusterKey.fresh()
encode = msgspec.msgpack.encode
taken_over = threading.Event()


def take_over() -> None:
    taken_over.set()


TAKING_OVER = b"".join(
    [
        *pack(HELLO, 0, 0, 0, encode((1, "tcp://127.0.0.1:1", 1, 0)), ()),
        *pack(
            CALL,
            0,
            1,
            0,
            encode(["tests.rpc.security.test_relay:take_over", None, None, [], 0, [], [], None]),
            (),
        ),
    ]
)
FORGED = Card("ps", 0, 2, "tcp://127.0.0.1:6", 666)


def where(address: str) -> tuple[str, int]:
    parsed = parse_address(address)
    return parsed.host, parsed.port


@pytest.fixture(autouse=True)
def _fresh():
    taken_over.clear()


@pytest.fixture
def ps():
    worker = start_worker("ps", 0, "tcp://127.0.0.1:0", KEY)
    yield worker
    worker.close()


@pytest.fixture
def place(ps):
    """The meeting place of a first job, at which t0 is still missing."""
    me = Card("ps", 0, 2, ps.address, ps.info.incarnation)
    identity = Identity("ps", ps.info.incarnation, KEY)
    meeting = Rendezvous("tcp://127.0.0.1:0", identity, me, print, lambda _: False)
    yield meeting
    meeting.close()


def refusal(address: str) -> str:
    me = Card("t0", 1, 2, "tcp://127.0.0.1:5", 5)
    with pytest.raises(AuthenticationFailed) as caught:
        join(address, Identity("t0", 5, KEY), me, 10)
    return str(caught.value)


def test_who_relays_a_joining_to_a_workers_listener_runs_nothing_there(ps):
    with Relay(where(ps.address), to_listener=TAKING_OVER) as relay:
        message = refusal(relay.address)
        assert relay.is_over.wait(10)
        assert not relay.relayed.is_set()
    assert not taken_over.is_set()
    assert "expected a meeting place" in message


def test_who_relays_a_joining_to_the_meeting_place_cant_answer_in_its_name(place):
    forged = b"".join(pack(ANSWER, 0, 0, 0, encode([FORGED]), ()))
    with Relay(where(place.address), to_dialler=forged) as relay:
        message = refusal(relay.address)
        assert not relay.relayed.is_set()
    assert f"127.0.0.1 port {relay.port}" in message
    assert f"127.0.0.1 port {where(place.address)[1]}" in message
    assert "relays" in message
    assert [each.name for each in place.everyone()] == ["ps"]


def test_a_second_job_with_the_same_key_is_not_led_into_the_first(place):
    with Relay(where(place.address)) as relay, ThreadPoolExecutor() as threads:
        meeting = Meeting(relay.address, KEY)
        options = Options(unix_sockets=False, join_timeout=10)
        job = threads.submit(Membership, "t0", 1, 2, options, meeting, lambda _: None)
        with pytest.raises(AuthenticationFailed, match="relays"):
            job.result(20).close()
    assert [each.name for each in place.everyone()] == ["ps"]


def test_who_holds_the_port_of_a_worker_that_moved_cant_call_it_in_the_diallers_name(ps):
    trainer = start_worker("t0", 1, "tcp://127.0.0.1:0", KEY)
    try:
        with Relay(where(ps.address), to_listener=TAKING_OVER) as relay:
            trainer.add_peer(ps.info, relay.address)
            with pytest.raises(PeerError, match="relays"):
                trainer.rpc_sync("ps", simulated.who)
            assert not relay.relayed.is_set()
        assert not taken_over.is_set()
        trainer.add_peer(ps.info, ps.address)
        assert eventually(lambda: trainer.rpc_sync("ps", simulated.who) == "ps")
    finally:
        trainer.close()


def test_who_relays_a_link_to_the_meeting_place_of_its_worker_gets_nowhere(ps, place):
    trainer = start_worker("t0", 1, "tcp://127.0.0.1:0", KEY)
    try:
        with Relay(where(place.address)) as relay:
            trainer.add_peer(ps.info, relay.address)
            with pytest.raises(PeerError, match="expected the listener of a worker"):
                trainer.rpc_sync("ps", simulated.who, timeout=10)
            assert not relay.relayed.is_set()
    finally:
        trainer.close()
    assert [each.name for each in place.everyone()] == ["ps"]


def test_a_port_that_was_bound_before_rank_0_came_is_of_no_use(ps):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with Relay(where(ps.address), to_listener=TAKING_OVER, port=port) as relay:
        refusal(f"tcp://localhost:{relay.port}")
        assert relay.is_over.wait(10)
        assert not relay.relayed.is_set()
    assert not taken_over.is_set()
