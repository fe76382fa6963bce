"""The handshake without I/O: two state machines and the bytes between them."""

from collections.abc import Callable

import msgspec
import pytest

from telegrad.errors import AuthenticationFailed, PeerError, ProtocolViolation
from telegrad.rpc.security.handshake import (
    Agreement,
    Closed,
    Effect,
    Elapsed,
    Established,
    Failed,
    Handshake,
    Opened,
    Received,
    Write,
)
from telegrad.rpc.security.introduction import Ends, Introduction, Limits, Purpose, Side
from telegrad.rpc.security.keys import ClusterKey, SessionKeys

KEY = ClusterKey(b"k" * 32)
ENDS = Ends(("127.0.0.1", 50000), ("127.0.0.1", 29500))
DIALLER = Introduction(
    Side.DIALLER,
    "trainer",
    41,
    b"d" * 32,
    Limits(header_bytes=5000),
    True,
    expected="ps",
    ends=ENDS,
)
LISTENER = Introduction(Side.LISTENER, "ps", 42, b"l" * 32, Limits(dimensions=10), True, ends=ENDS)


def dialler(own: Introduction = DIALLER, key: ClusterKey = KEY, **options: object) -> Handshake:
    return Handshake(own, (key,), deadline=10.0, **options)  # type: ignore[arg-type]


def listener(own: Introduction = LISTENER, key: ClusterKey = KEY, **options: object) -> Handshake:
    return Handshake(own, (key,), deadline=10.0, **options)  # type: ignore[arg-type]


def written(effects: list[Effect]) -> bytes:
    return b"".join(effect.data for effect in effects if isinstance(effect, Write))


def failure(effects: list[Effect]) -> PeerError:
    (error,) = (effect.error for effect in effects if isinstance(effect, Failed))
    return error


def agreement(effects: list[Effect]) -> Agreement | None:
    return next((e.agreement for e in effects if isinstance(e, Established)), None)


def converse(one: Handshake, other: Handshake) -> tuple[list[Effect], list[Effect]]:
    """Let the dialler and the listener speak until neither has more to say."""
    said_by_one, said_by_other = one.handle(Opened(), 0.0), other.handle(Opened(), 0.0)
    all_one, all_other = list(said_by_one), list(said_by_other)
    while said_by_one or said_by_other:
        to_other, to_one = written(said_by_one), written(said_by_other)
        said_by_one = one.handle(Received(to_one), 0.0) if to_one else []
        said_by_other = other.handle(Received(to_other), 0.0) if to_other else []
        all_one += said_by_one
        all_other += said_by_other
    return all_one, all_other


def test_two_workers_with_the_key_agree_on_everything_negotiated() -> None:
    ours, theirs = converse(dialler(), listener())
    assert agreement(ours) == Agreement("ps", 42, 3, Limits(header_bytes=5000, dimensions=10), True)
    assert agreement(theirs) == Agreement(
        "trainer", 41, 3, Limits(header_bytes=5000, dimensions=10), True
    )


def test_segments_are_agreed_only_when_both_take_them() -> None:
    ours, theirs = converse(dialler(), listener(msgspec.structs.replace(LISTENER, segments=False)))
    for effects in (ours, theirs):
        agreed = agreement(effects)
        assert agreed is not None
        assert not agreed.segments


def test_bytes_may_come_one_by_one_and_none_beyond_the_handshake_is_wanted() -> None:
    one, other = dialler(), listener()
    inboxes: dict[Handshake, bytearray] = {one: bytearray(), other: bytearray()}
    done = []
    inboxes[other] += written(one.handle(Opened(), 0.0))
    other.handle(Opened(), 0.0)
    while any(inboxes.values()):
        for machine, peer in ((one, other), (other, one)):
            if inboxes[machine]:
                assert machine.wanted
                effects = machine.handle(Received(bytes([inboxes[machine].pop(0)])), 0.0)
                inboxes[peer] += written(effects)
                done += [effect for effect in effects if isinstance(effect, Established)]
    assert len(done) == 2
    assert one.wanted == other.wanted == 0


def test_a_listener_with_another_key_is_not_believed() -> None:
    one, other = dialler(), listener(key=ClusterKey(b"x" * 32))
    ours, theirs = converse(one, other)
    assert isinstance(failure(theirs), AuthenticationFailed)
    assert "did not prove the cluster's key" in str(failure(theirs))
    assert "ps refused our proof" in str(failure(ours))
    assert "TELEGRAD_KEY_FILE" in str(failure(ours))
    assert agreement(ours) is None
    assert agreement(theirs) is None


def test_an_impostor_that_accepts_any_proof_cant_make_its_own() -> None:
    one, other = dialler(), listener()
    intro = written(one.handle(Opened(), 0.0))
    other.handle(Opened(), 0.0)
    one.handle(Received(written(other.handle(Received(intro), 0.0))), 0.0)
    effects = one.handle(Received(b"\x01" + b"?" * 32), 0.0)
    assert "did not prove the cluster's key" in str(failure(effects))
    # A listener that has proved itself, as it thinks, would take it for payload.
    assert not written(effects)


def test_a_proof_sent_back_to_its_maker_proves_nothing() -> None:
    one, other = dialler(), listener()
    intro = written(one.handle(Opened(), 0.0))
    other.handle(Opened(), 0.0)
    proof = written(one.handle(Received(written(other.handle(Received(intro), 0.0))), 0.0))
    assert isinstance(failure(one.handle(Received(proof), 0.0)), AuthenticationFailed)


def test_an_introduction_sent_back_to_its_maker_is_refused() -> None:
    one = dialler()
    mine = written(one.handle(Opened(), 0.0))
    effects = one.handle(Received(mine), 0.0)
    assert isinstance(failure(effects), AuthenticationFailed)
    assert "our own message sent back" in str(failure(effects))
    assert not written(effects)


def test_our_nonce_in_anothers_introduction_is_refused() -> None:
    one = dialler()
    one.handle(Opened(), 0.0)
    echo = msgspec.structs.replace(LISTENER, nonce=DIALLER.nonce)
    assert isinstance(failure(one.handle(Received(echo.encode()), 0.0)), AuthenticationFailed)


def test_a_replayed_conversation_fails_against_a_fresh_nonce() -> None:
    one, other = dialler(), listener()
    recorded = []
    intro = written(one.handle(Opened(), 0.0))
    other.handle(Opened(), 0.0)
    recorded.append(intro)
    recorded.append(written(one.handle(Received(written(other.handle(Received(intro), 0.0))), 0.0)))
    assert agreement(other.handle(Received(recorded[1]), 0.0))

    again = listener(msgspec.structs.replace(LISTENER, nonce=b"n" * 32))
    again.handle(Opened(), 0.0)
    again.handle(Received(recorded[0]), 0.0)
    effects = again.handle(Received(recorded[1]), 0.0)
    assert isinstance(failure(effects), AuthenticationFailed)
    assert agreement(effects) is None


@pytest.mark.parametrize(
    "change",
    [
        {"name": "mallory"},
        {"incarnation": 43},
        {"limits": Limits()},
        {"segments": False},
        {"newest": 9},
        {"nonce": b"m" * 32},
    ],
)
@pytest.mark.parametrize("of", [Side.DIALLER, Side.LISTENER])
def test_nothing_negotiated_can_be_changed_under_way(of: Side, change: dict[str, object]) -> None:
    meeting = {"purpose": Purpose.MEETING, "expected": ""}
    one = dialler(msgspec.structs.replace(DIALLER, **meeting))
    other = listener(msgspec.structs.replace(LISTENER, **meeting))
    changes = {of: lambda said: msgspec.structs.replace(said, **change)}
    ours, theirs = relay(one, other, changes)
    assert isinstance(failure(theirs), AuthenticationFailed)
    assert "did not prove" in str(failure(theirs))
    assert agreement(ours) is None
    assert agreement(theirs) is None


def relay(
    one: Handshake, other: Handshake, changes: dict[Side, Callable[[Introduction], Introduction]]
) -> tuple[list[Effect], list[Effect]]:
    """Let both speak through one without the key, who changes what they say of themselves."""
    ours, theirs = one.handle(Opened(), 0.0), other.handle(Opened(), 0.0)
    said = Introduction.decode(written(ours))
    theirs += other.handle(
        Received(changes.get(Side.DIALLER, lambda said: said)(said).encode()), 0.0
    )
    said = Introduction.decode(written(theirs))
    proved = one.handle(Received(changes.get(Side.LISTENER, lambda said: said)(said).encode()), 0.0)
    ours += proved
    if proof := written(proved):
        answered = other.handle(Received(proof), 0.0)
        theirs += answered
        ours += one.handle(Received(written(answered)), 0.0) if written(answered) else []
    return ours, theirs


ELSEWHERE = Ends(("127.0.0.1", 50001), ("127.0.0.1", 29501))


def test_a_relay_is_seen_by_both_at_the_ends_of_their_connections() -> None:
    other = listener(msgspec.structs.replace(LISTENER, ends=ELSEWHERE))
    ours, theirs = relay(dialler(), other, {})
    assert "ps has a connection from 127.0.0.1 port 50001 to 127.0.0.1 port 29501, this worker" in (
        str(failure(ours))
    )
    assert "this worker one from 127.0.0.1 port 50001 to" in str(failure(theirs))
    for error in (failure(ours), failure(theirs)):
        assert isinstance(error, AuthenticationFailed)
        assert "another process holds the port and relays" in str(error)
        assert "telegrad keygen" in str(error)
    # Nothing made with the key was given away.
    assert written(ours) == DIALLER.encode()


@pytest.mark.parametrize(
    ("field", "here", "there"),
    [
        ("ends", ENDS, ELSEWHERE),
        ("ends", None, ELSEWHERE),
        ("purpose", Purpose.LINK, Purpose.MEETING),
        ("purpose", Purpose.MEETING, Purpose.LINK),
    ],
)
def test_a_relay_that_tells_each_what_it_wants_to_hear_has_no_proof_for_it(
    field: str, here: object, there: object
) -> None:
    one = dialler(
        msgspec.structs.replace(
            DIALLER, **{field: here}, expected="" if here is Purpose.MEETING else "ps"
        )
    )
    other = listener(msgspec.structs.replace(LISTENER, **{field: there}))
    changes = {
        Side.DIALLER: lambda said: msgspec.structs.replace(
            said, **{field: there}, expected="" if there is Purpose.MEETING else "ps"
        ),
        Side.LISTENER: lambda said: msgspec.structs.replace(said, **{field: here}),
    }
    ours, theirs = relay(one, other, changes)
    assert "did not prove the cluster's key" in str(failure(theirs))
    assert "refused our proof" in str(failure(ours))
    assert agreement(ours) is None


def test_a_joining_that_reaches_a_worker_and_a_link_that_reaches_a_meeting_are_refused() -> None:
    joining = msgspec.structs.replace(DIALLER, purpose=Purpose.MEETING, expected="")
    ours, theirs = converse(dialler(joining), listener())
    assert "expected a meeting place, got the listener of a worker (ps)" in str(failure(ours))
    assert "MASTER_PORT" in str(failure(ours))
    assert "trainer dialled a meeting place, this is the listener of" in str(failure(theirs))
    place = msgspec.structs.replace(LISTENER, purpose=Purpose.MEETING)
    ours, theirs = converse(dialler(), listener(place))
    assert "expected the listener of a worker, got a meeting place (ps)" in str(failure(ours))
    assert isinstance(failure(theirs), AuthenticationFailed)


@pytest.mark.parametrize(
    ("purpose", "expected", "said"),
    [
        (Purpose.LINK, "", "trainer dialled nobody and reached ps"),
        (Purpose.LINK, "ps2", "trainer dialled ps2 and reached ps"),
        (Purpose.MEETING, "ps", "trainer dialled ps and reached ps"),
    ],
)
def test_a_listener_lets_in_only_who_means_it(purpose: Purpose, expected: str, said: str) -> None:
    other = listener(msgspec.structs.replace(LISTENER, purpose=purpose))
    other.handle(Opened(), 0.0)
    claim = msgspec.structs.replace(DIALLER, purpose=purpose, expected=expected)
    effects = other.handle(Received(claim.encode()), 0.0)
    assert said in str(failure(effects))
    # It is answered, so that it can tell its user the same.
    assert Introduction.decode(written(effects)).name == "ps"


def keys(effects: list[Effect]) -> SessionKeys:
    (found,) = (effect.keys for effect in effects if isinstance(effect, Established))
    return found


def test_the_keys_of_frames_are_of_one_connection_and_direction_and_no_proof() -> None:
    ours, theirs = converse(dialler(), listener())
    again, _ = converse(dialler(msgspec.structs.replace(DIALLER, nonce=b"e" * 32)), listener())
    assert keys(ours).sending == keys(theirs).receiving
    assert keys(ours).receiving == keys(theirs).sending
    seen = {keys(each).sending for each in (ours, theirs, again)}
    seen |= {keys(again).receiving, KEY.derive("telegrad dialler proof", b"")}
    assert len(seen) == 5
    for secret in seen:
        assert secret not in written(ours) + written(theirs)
    assert repr(keys(ours)) == "SessionKeys(<hidden>)"
    assert keys(ours).sending.hex() not in repr(ours)
    assert str(keys(ours).sending) not in repr(ours)


def test_certificates_of_another_wire_break_the_proof() -> None:
    ours, theirs = converse(
        dialler(certificates=(b"cert d", b"cert of a relay")),
        listener(certificates=(b"cert d", b"cert l")),
    )
    assert isinstance(failure(theirs), AuthenticationFailed)
    assert agreement(ours) is None


def test_a_worker_under_another_name_is_refused_before_anything_is_proved() -> None:
    own = msgspec.structs.replace(DIALLER, expected="ps2")
    ours, theirs = converse(dialler(own), listener())
    assert "expected the worker ps2" in str(failure(ours))
    assert "got ps" in str(failure(ours))
    assert written(ours) == own.encode()
    assert "trainer dialled ps2 and reached ps" in str(failure(theirs))


def test_a_dialler_under_another_name_is_told_so_once_it_has_proved_the_key() -> None:
    one, other = dialler(), listener(certified="trainer2")
    ours, theirs = converse(one, other)
    assert "expected the worker trainer2, whose certificate it is" in str(failure(theirs))
    assert isinstance(failure(ours), AuthenticationFailed)
    assert "ps refused our proof" in str(failure(ours))
    assert "certificate of its own name" in str(failure(ours))
    assert agreement(ours) is None
    assert agreement(theirs) is None


def test_versions_without_overlap_name_both_ranges() -> None:
    newer = msgspec.structs.replace(LISTENER, oldest=7, newest=9)
    ours, theirs = converse(dialler(), listener(newer))
    for error in (failure(ours), failure(theirs)):
        assert isinstance(error, ProtocolViolation)
        assert "7 to 9" in str(error)
        assert "3 to 3" in str(error)


def test_the_newest_common_version_is_spoken() -> None:
    ours, _ = converse(
        dialler(msgspec.structs.replace(DIALLER, newest=4)),
        listener(msgspec.structs.replace(LISTENER, newest=9)),
    )
    agreed = agreement(ours)
    assert agreed is not None
    assert agreed.version == 4


def test_a_slow_peer_fails_at_the_deadline_and_not_before() -> None:
    machine = listener()
    machine.handle(Opened(), 0.0)
    assert machine.handle(Received(b"tele"), 9.9) == []
    assert machine.handle(Elapsed(), 9.99) == []
    error = failure(machine.handle(Elapsed(), 10.0))
    assert isinstance(error, AuthenticationFailed)
    assert "deadline" in str(error)
    assert "4 bytes" in str(error)


def test_bytes_that_come_after_the_deadline_are_not_looked_at() -> None:
    machine = listener()
    machine.handle(Opened(), 0.0)
    assert "deadline" in str(failure(machine.handle(Received(DIALLER.encode()), 10.0)))


def test_a_connection_closed_midway_says_what_was_expected() -> None:
    machine = listener()
    machine.handle(Opened(), 0.0)
    machine.handle(Received(DIALLER.encode()[:50]), 0.0)
    error = failure(machine.handle(Closed(), 0.0))
    assert isinstance(error, ProtocolViolation)
    assert "50 bytes" in str(error)


def test_a_listener_that_dies_at_our_proof_has_not_refused_it() -> None:
    one, other = dialler(), listener()
    intro = written(one.handle(Opened(), 0.0))
    other.handle(Opened(), 0.0)
    one.handle(Received(written(other.handle(Received(intro), 0.0))), 0.0)
    error = failure(one.handle(Closed(), 0.0))
    assert isinstance(error, ProtocolViolation)
    assert "closed when the other side's proof was expected" in str(error)


def test_a_stranger_is_known_by_its_first_bytes() -> None:
    machine = listener()
    machine.handle(Opened(), 0.0)
    error = failure(machine.handle(Received(b"GET / HTTP/1.1"), 0.0))
    assert isinstance(error, ProtocolViolation)
    assert "GET / HT" in str(error)
    assert "certificates" not in str(error)


def test_a_dialler_with_tls_is_told_from_a_stranger_by_one_without() -> None:
    machine = listener()
    machine.handle(Opened(), 0.0)
    hello = b"\x16\x03\x01\x00\xdc\x01\x00\x00\xd8\x03\x03"
    error = failure(machine.handle(Received(hello), 0.0))
    assert str(error).endswith(": have both sides certificates (TELEGRAD_CREDENTIALS), or neither?")


def test_more_bytes_than_wanted_are_a_violation() -> None:
    machine = listener()
    machine.handle(Opened(), 0.0)
    error = failure(machine.handle(Received(DIALLER.encode() + b"!"), 0.0))
    assert isinstance(error, ProtocolViolation)


def test_nothing_is_handled_after_a_failure() -> None:
    machine = listener()
    machine.handle(Opened(), 0.0)
    machine.handle(Received(b"garbage!"), 0.0)
    assert machine.wanted == 0
    assert machine.handle(Received(DIALLER.encode()), 0.0) == []
    assert machine.handle(Closed(), 0.0) == []
