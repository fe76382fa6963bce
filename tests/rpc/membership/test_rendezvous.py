"""The meeting place at rank 0: everybody comes, nobody else, and some come again."""

import threading
import time

import msgspec
import pytest
from tests.rpc.connected import PATIENCE
from tests.rpc.neighbours import eventually

from telegrad.errors import AuthenticationFailed, CallTimeout, UsageError
from telegrad.rpc.driver.frame_reader import FrameReader
from telegrad.rpc.driver.spin import Spinning
from telegrad.rpc.membership import rendezvous
from telegrad.rpc.membership.card import Card
from telegrad.rpc.membership.rendezvous import Rendezvous, join
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.transport import Identity, connect, listen
from telegrad.rpc.wire.frames import CALL, FAILURE, PREFIX, SERVICE, pack

KEY = ClusterKey.fresh()


def joining(name, rank, size=3, incarnation=1):
    return Card(name, rank, size, f"unix:///nowhere/{name}.sock", incarnation)


def identity(name, key=KEY, incarnation=1):
    return Identity(name, incarnation, key)


@pytest.fixture
def place():
    returned, me = [], joining("ps", 0)
    meeting = Rendezvous(
        "tcp://127.0.0.1:0",
        identity("ps"),
        me,
        returned.append,
        lambda member: member in meeting.alive,
    )
    meeting.returned, meeting.alive = returned, []
    yield meeting
    meeting.close()


def here(place):
    """Who is here, by name."""
    return {each.name: each for each in place.everyone()}


def go(place, name, rank, **more):
    """Join on a thread of its own; return where the outcome will be, and the thread."""
    outcome = []

    def run():
        try:
            outcome.append(join(place.address, identity(name), joining(name, rank, **more), 10))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return outcome, thread


def test_all_learn_of_all_when_the_last_is_in(place):
    (one, first), (two, second) = go(place, "t0", 1), go(place, "t1", 2)
    members = place.wait(10)
    first.join(10)
    second.join(10)
    assert [member.name for member in members] == ["ps", "t0", "t1"]
    assert one == two == [members]


def test_a_worker_that_comes_back_is_let_in_at_once_and_announced(place):
    for name, rank in (("t0", 1), ("t1", 2)):
        go(place, name, rank)
    place.wait(10)
    again = joining("t1", 2, incarnation=7)
    members = join(place.address, identity("t1", incarnation=7), again, 10)
    assert members[2].incarnation == 7
    assert eventually(lambda: place.returned == [again])


def test_a_second_worker_of_a_name_is_refused_while_the_first_lives(place):
    for name, rank in (("t0", 1), ("t1", 2)):
        go(place, name, rank)
    place.alive += place.wait(10)
    again = joining("t1", 2, incarnation=7)
    with pytest.raises(
        UsageError, match=r"named 't1' already \(rank 2, at unix:.*\), and it lives: .*second"
    ):
        join(place.address, identity("t1", incarnation=7), again, 10)
    assert here(place)["t1"].incarnation == 1
    assert not place.returned
    place.alive.clear()
    assert join(place.address, identity("t1", incarnation=7), again, 10)[2] == again


def test_of_two_that_come_back_at_once_one_is_let_in(place):
    for name, rank in (("t0", 1), ("t1", 2)):
        go(place, name, rank)
    place.wait(10)
    both = threading.Barrier(2)

    class Alive:
        def __contains__(self, member):
            if member.incarnation == 1:
                both.wait(10)
            return member.incarnation != 1

    place.alive = Alive()
    (one, first), (two, second) = (go(place, "t1", 2, incarnation=i) for i in (7, 8))
    first.join(10)
    second.join(10)
    refused = [each for each in (*one, *two) if isinstance(each, UsageError)]
    assert len(one + two) == 2
    assert len(refused) == 1
    # Others are told of it after it was let in.
    assert eventually(lambda: len(place.returned) == 1)


@pytest.mark.parametrize(
    ("name", "rank", "size", "message"),
    [
        ("t0", 5, 3, "expected a rank from 1 to 2, t0 has 5"),
        ("t0", 0, 3, "expected a rank from 1 to 2, t0 has 0"),
        ("t0", 1, 4, "rank 0 expects a world of 3 workers, t0 a world of 4"),
        ("ps", 1, 3, "there is a worker named 'ps' already"),
    ],
)
def test_whoever_does_not_fit_is_told_why(place, name, rank, size, message):
    with pytest.raises(UsageError, match=message):
        join(place.address, identity(name), joining(name, rank, size), 10)


def test_who_comes_while_the_meeting_place_opens_is_told_why_it_does_not_fit(monkeypatch):
    came = []

    def listen_and_be_found(*args, **options):
        listener = listen(*args, **options)
        came.append(go(listener, "t0", 1, size=9))
        # An answer would come now, if one came before the place is ready.
        eventually(lambda: came[0][0], 0.5)
        return listener

    monkeypatch.setattr(rendezvous, "listen", listen_and_be_found)
    place = Rendezvous("tcp://127.0.0.1:0", identity("ps"), joining("ps", 0), print, bool)
    ((outcome, thread),) = came
    thread.join(10)
    place.close()
    assert "rank 0 expects a world of 3 workers, t0 a world of 9" in str(outcome[0])


def test_a_rank_that_is_taken_is_refused_while_the_first_goes_on_waiting(place):
    _, waiting = go(place, "t0", 1)
    assert eventually(lambda: "t0" in here(place))
    with pytest.raises(CallTimeout):
        place.wait(0.0)
    with pytest.raises(UsageError, match="rank 1 is taken by 't0'"):
        join(place.address, identity("t1"), joining("t1", 1), 10)
    assert waiting.is_alive()
    place.close()
    waiting.join(10)
    assert not waiting.is_alive()


def test_nobody_without_the_key_is_listened_to(place):
    with pytest.raises(AuthenticationFailed):
        join(place.address, identity("t0", ClusterKey.fresh()), joining("t0", 1), 10)


def say(connection, who):
    connection.send(pack(SERVICE, 0, 0, 0, msgspec.msgpack.encode(who), ()))


def test_a_worker_that_died_while_it_waited_may_come_back_under_its_name(place):
    dead = connect(place.address, identity=identity("t0"))
    say(dead, joining("t0", 1))
    assert eventually(lambda: "t0" in here(place))
    dead.close()
    again, first = go(place, "t0", 1, incarnation=7)
    assert eventually(lambda: here(place)["t0"].incarnation == 7)
    _, second = go(place, "t1", 2)
    members = place.wait(10)
    first.join(10)
    second.join(10)
    assert again == [members]
    assert members[1].incarnation == 7


def test_who_joins_as_the_meeting_place_closes_is_told_so(place):
    connection = connect(place.address, identity=identity("t0"))
    place.close()
    try:
        say(connection, joining("t0", 1))
        frame = FrameReader(connection, Spinning(0.0)).read(time.monotonic() + 5.0)
        assert frame is not None
        assert frame.kind == FAILURE
        assert "has closed" in msgspec.msgpack.decode(frame.header)
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (SERVICE, msgspec.msgpack.encode(joining("t0", 1)).replace(b"t0", b"\xff\xfe")),
        (SERVICE, msgspec.msgpack.encode(joining("t1", 2))),
        (CALL, msgspec.msgpack.encode(joining("t0", 1))),
    ],
    ids=["no text", "the name of another", "no joining"],
)
def test_who_joins_as_no_worker_does_is_hung_up_on_and_the_others_go_on(place, kind, said):
    connection = connect(place.address, identity=identity("t0"))
    try:
        connection.send(pack(kind, 0, 0, 0, said, ()))
        with pytest.raises(EOFError):
            FrameReader(connection, Spinning(0.0)).read(time.monotonic() + 10)
    finally:
        connection.close()
    # A thread that failed would fail the test.
    _, first = go(place, "t0", 1)
    _, second = go(place, "t1", 2)
    assert len(place.wait(10)) == 3
    first.join(10)
    second.join(10)


def test_a_frame_with_arrays_is_not_received(place):
    connection = connect(place.address, identity=identity("t0"))
    try:
        # Agreed on before: what names more is hung up on, and nothing is allocated for it.
        assert connection.limits.payload_bytes == 0
        connection.send([PREFIX.pack(SERVICE, 0, 1, 0, 1 << 40, 0, 0)])
        with pytest.raises(EOFError):
            FrameReader(connection, Spinning(0.0)).read(time.monotonic() + 10)
    finally:
        connection.close()


def test_a_worker_that_does_not_read_keeps_nobody_waiting(place):
    deaf = connect(place.address, identity=identity("deaf"))
    try:
        say(deaf, joining("deaf", 1))
        assert eventually(lambda: "deaf" in here(place))
        # More than the buffers of a connection take.
        wordy = Card("wordy", 2, 3, "x" * (16 << 20), 1)
        members = join(place.address, identity("wordy"), wordy, 10)
        assert place.wait(10) == members
        # It is answered all the same, when it reads.
        frame = FrameReader(deaf, Spinning(0.0)).read(time.monotonic() + 10)
        assert msgspec.msgpack.decode(frame.header, type=list[Card]) == members
    finally:
        deaf.close()


def test_who_waits_for_the_others_in_vain_is_told_that_they_did_not_come(place, monkeypatch):
    def connect_in_peace(address, **options):
        return connect(address, **{**options, "timeout": PATIENCE, "patience": PATIENCE})

    # So that the time is over for the others alone.
    monkeypatch.setattr(rendezvous, "connect", connect_in_peace)
    with pytest.raises(CallTimeout, match=r"^t0 reached rank 0 at .*, but not all 3 workers came"):
        join(place.address, identity("t0"), joining("t0", 1), 0.1)
