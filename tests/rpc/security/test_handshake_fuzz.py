"""The handshake against whatever a stranger may send."""

import ipaddress

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telegrad.errors import ProtocolViolation, UsageError
from telegrad.rpc.security.handshake import (
    Closed,
    Effect,
    Elapsed,
    Established,
    Handshake,
    Opened,
    Received,
)
from telegrad.rpc.security.introduction import (
    INTRODUCTION_BYTES,
    Ends,
    Introduction,
    Limits,
    Purpose,
    Side,
    check_worker_name,
)
from telegrad.rpc.security.keys import ClusterKey

KEY = ClusterKey(b"k" * 32)


def _plain(host: str) -> str:
    """Return an IPv4 address as itself, also where it is written as an IPv6 one."""
    address = ipaddress.ip_address(host)
    return str(getattr(address, "ipv4_mapped", None) or address)


names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}", fullmatch=True)
ends = st.tuples(st.ip_addresses().map(lambda host: _plain(str(host))), st.integers(0, 2**16 - 1))
introductions = st.builds(
    Introduction,
    side=st.sampled_from(Side),
    name=names,
    incarnation=st.integers(0, 2**64 - 1),
    nonce=st.binary(min_size=32, max_size=32),
    limits=st.builds(
        Limits,
        header_bytes=st.integers(0, 2**32 - 1),
        payload_bytes=st.integers(0, 2**64 - 1),
        dimensions=st.integers(0, 2**16 - 1),
    ),
    segments=st.booleans(),
    purpose=st.sampled_from(Purpose),
    expected=st.just("") | st.just("ps") | names,
    ends=st.none() | st.builds(Ends, ends, ends).filter(lambda both: any(both.encode())),
    oldest=st.just(1),
    newest=st.integers(1, 2**16 - 1),
)


def machine(side: Side) -> Handshake:
    own = Introduction(side, "ps", 1, b"n" * 32, expected="ps" if side is Side.DIALLER else "")
    handshake = Handshake(own, (KEY,), deadline=10.0)
    handshake.handle(Opened(), 0.0)
    return handshake


def feed(handshake: Handshake, data: bytes, cuts: list[int]) -> list[Effect]:
    """Hand over the data in pieces no longer than wanted, as a driver does."""
    effects: list[Effect] = []
    cut = iter(cuts)
    while data and handshake.wanted:
        size = min(next(cut, len(data)), handshake.wanted)
        effects += handshake.handle(Received(data[:size]), 0.0)
        data = data[size:]
    return effects


@settings(deadline=None)
@given(introduction=introductions)
def test_an_introduction_survives_the_wire(introduction: Introduction) -> None:
    message = introduction.encode()
    assert len(message) == INTRODUCTION_BYTES
    assert Introduction.decode(message) == introduction


@settings(deadline=None)
@given(message=st.binary(min_size=INTRODUCTION_BYTES - 8, max_size=INTRODUCTION_BYTES))
def test_any_bytes_are_an_introduction_or_a_violation(message: bytes) -> None:
    try:
        introduction = Introduction.decode(message)
    except ProtocolViolation:
        return
    assert introduction.encode() == message


@settings(deadline=None, max_examples=5)
@given(introduction=introductions)
def test_each_flipped_bit_is_noticed_or_makes_another_introduction(
    introduction: Introduction,
) -> None:
    message = introduction.encode()
    for position in range(8 * len(message)):
        flipped = bytearray(message)
        flipped[position // 8] ^= 1 << position % 8
        try:
            other = Introduction.decode(bytes(flipped))
        except ProtocolViolation:
            continue
        assert other != introduction
        assert other.encode() == flipped


@pytest.mark.parametrize(("oldest", "newest"), [(0, 0), (0, 1), (2, 1)])
def test_versions_that_no_worker_speaks_are_a_violation(oldest: int, newest: int) -> None:
    own = Introduction(Side.DIALLER, "ps", 1, b"n" * 32, oldest=oldest, newest=newest)
    with pytest.raises(ProtocolViolation, match=f"versions {oldest} to {newest}"):
        Introduction.decode(own.encode())


@settings(deadline=None)
@given(
    side=st.sampled_from(Side),
    introduction=st.none() | introductions,
    data=st.binary(max_size=600),
    cuts=st.lists(st.integers(1, 300), max_size=20),
)
def test_no_stranger_gets_in_whatever_it_sends(
    side: Side, introduction: Introduction | None, data: bytes, cuts: list[int]
) -> None:
    handshake = machine(side)
    prefix = b"" if introduction is None else introduction.encode()
    effects = feed(handshake, prefix + data, cuts)
    effects += handshake.handle(Closed(), 0.0)
    effects += handshake.handle(Elapsed(), 11.0)
    assert not any(isinstance(effect, Established) for effect in effects)
    assert handshake.wanted == 0


@settings(deadline=None)
@given(
    key=st.binary(min_size=32, max_size=32).filter(lambda secret: secret != b"k" * 32),
    nonce=st.binary(min_size=32, max_size=32).filter(lambda nonce: nonce != b"n" * 32),
)
def test_no_other_key_gets_in(key: bytes, nonce: bytes) -> None:
    handshake = machine(Side.LISTENER)
    own = Introduction(Side.DIALLER, "eve", 1, nonce, expected="ps")
    eve = Handshake(own, (ClusterKey(key),), deadline=10.0)
    said = eve.handle(Opened(), 0.0)
    for _ in range(2):
        answers = [
            effect
            for message in said
            for effect in handshake.handle(Received(message.data), 0.0)  # type: ignore[union-attr]
        ]
        assert not any(isinstance(effect, Established) for effect in answers)
        said = [
            effect
            for answer in answers
            if hasattr(answer, "data")
            for effect in eve.handle(Received(answer.data), 0.0)
            if hasattr(effect, "data")
        ]


@settings(deadline=None)
@given(name=st.text(max_size=140) | st.text(st.sampled_from("ab.:-"), min_size=120, max_size=140))
def test_a_name_is_a_workers_exactly_if_it_can_be_introduced(name: str) -> None:
    plain = Introduction(Side.DIALLER, "x", 1, b"n" * 32)
    try:
        check_worker_name(name)
    except UsageError:
        with pytest.raises((ProtocolViolation, UnicodeEncodeError)):
            Introduction.decode(msgspec.structs.replace(plain, name=name).encode())
        return
    assert Introduction.decode(msgspec.structs.replace(plain, name=name).encode()).name == name
