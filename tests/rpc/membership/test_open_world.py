"""Open worlds: workers come late, leave and come back; rank 0 may go as any other."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
import torch.distributed
from tests.rpc import simulated
from tests.rpc.connected import PATIENCE, Clock
from tests.rpc.neighbours import eventually

from telegrad.errors import (
    AuthenticationFailed,
    CallTimeout,
    UnknownWorker,
    UsageError,
    WorkerLost,
)
from telegrad.rpc.membership import board_roster
from telegrad.rpc.membership import membership as membership_module
from telegrad.rpc.membership.board_roster import BoardRoster
from telegrad.rpc.membership.card import OPEN, Card
from telegrad.rpc.membership.directory_board import DirectoryBoard
from telegrad.rpc.membership.membership import Membership
from telegrad.rpc.membership.rendezvous import Meeting
from telegrad.rpc.membership.roster import Came, WorldMismatch
from telegrad.rpc.membership.store_board import StoreBoard
from telegrad.rpc.options import Options
from telegrad.rpc.security.key_file import KeyFile, next_keys, write_keys
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.transport import PrivateDirectory

KEY = ClusterKey.fresh()


class World:
    """Memberships in this process, at one place."""

    def __init__(self, meeting):
        self.meeting = meeting
        self._stack = contextlib.ExitStack()

    def join(self, name, rank=None, size=OPEN, meeting=None, **options):
        made = Membership(
            name, rank, size, Options(**options), meeting or self.meeting(), lambda _: None
        )
        self._stack.callback(made.close)
        return made

    def close(self):
        self._stack.close()


@pytest.fixture(params=["directory", "store", "rank 0"])
def world(request, tmp_path):
    store = torch.distributed.HashStore()
    with PrivateDirectory.make() as directory:
        meetings = {
            "directory": lambda: Meeting("", KEY, board=DirectoryBoard(tmp_path / "w")),
            "store": lambda: Meeting("", KEY, board=StoreBoard(store)),
            "rank 0": lambda: Meeting(directory.socket_address("meeting"), KEY),
        }
        made = World(meetings[request.param])
        yield made
        made.close()


@pytest.fixture
def board_world(tmp_path):
    made = World(lambda: Meeting("", KEY, board=DirectoryBoard(tmp_path / "w")))
    yield made
    made.close()


def names(member):
    return [peer.info.name for peer in member.worker.peers.all()]


def test_who_comes_late_calls_the_others_and_is_called_by_them_at_once(world):
    a = world.join("a", 0)
    assert a.worker.rpc_sync("a", simulated.who) == "a"
    b = world.join("b", 1)
    assert b.worker.rpc_sync("a", simulated.who) == "a"
    assert a.worker.rpc_sync("b", simulated.who) == "b"
    c = world.join("c", 2)
    assert b.worker.rpc_sync("c", simulated.who) == "c"
    assert c.worker.rpc_sync(1, simulated.who) == "b"
    assert names(c) == ["a", "b", "c"]


def test_rank_0_may_shut_down_just_as_it_announces_who_came():
    with PrivateDirectory.make() as directory, contextlib.ExitStack() as stack:
        world = World(lambda: Meeting(directory.socket_address("meeting"), KEY))
        stack.callback(world.close)
        a, _ = world.join("a", 0), world.join("b", 1)
        # As its main thread does meanwhile.
        a.roster.follow(lambda _: a.worker.close())
        world.join("c", 2)
        # One that failed would fail the test.
        announcing = [each for each in threading.enumerate() if each.name == "telegrad-rendezvous"]
        for thread in announcing:
            thread.join(PATIENCE)


def test_who_leaves_is_forgotten_and_its_name_may_come_again_with_another_life(world):
    a, b, c = world.join("a", 0), world.join("b", 1), world.join("c", 2)
    assert a.worker.rpc_sync("b", simulated.who) == "b"
    assert c.worker.rpc_sync("b", simulated.who) == "b"
    first = b.worker.info
    b.leave(PATIENCE)
    b.close()
    assert eventually(lambda: names(a) == ["a", "c"] and names(c) == ["a", "c"])
    with pytest.raises(UnknownWorker, match="no worker 'b'; the workers are 'a', 'c'"):
        c.worker.rpc_sync("b", simulated.who)
    again = world.join("b", 1)
    assert again.worker.info != first
    assert eventually(lambda: c.worker.rpc_sync("b", simulated.who) == "b")
    assert c.worker.find("b").info == again.worker.info


def test_a_worker_that_died_comes_back_under_its_name(world):
    a, b = world.join("a", 0), world.join("b", 1)
    assert a.worker.rpc_sync("b", simulated.who) == "b"
    # Without a word to the roster, as a killed one.
    b.worker.close()
    with pytest.raises(WorkerLost):
        a.worker.rpc_sync("b", simulated.who)
    again = world.join("b", 1)
    assert eventually(lambda: a.worker.find("b").info == again.worker.info)
    assert a.worker.rpc_sync("b", simulated.who) == "b"


def test_a_second_worker_of_a_name_is_told_where_the_first_is_which_goes_on(world):
    a, b = world.join("a", 0), world.join("b", 1)
    held = a.worker.rpc_async("b", simulated.never)
    said = r"worker named 'b' already \(rank 1, at unix:.*\), and it lives: .*second job"
    with pytest.raises(UsageError, match=said):
        world.join("b", 1)
    assert a.worker.rpc_sync("b", simulated.who) == "b"
    assert a.worker.find("b").info == b.worker.info
    assert not held.done()


def test_a_rank_that_another_has_is_refused(world):
    world.join("a", 0)
    world.join("b", 1)
    with pytest.raises(UsageError, match="rank 1 is taken by 'b'"):
        world.join("c", 1)


def test_a_worker_of_another_version_is_refused(world, monkeypatch):
    world.join("a", 0)
    monkeypatch.setattr(membership_module, "Card", lambda *fields: Card(*fields, version="0.0.9"))
    with pytest.raises(UsageError, match=r"telegrad .*0\.0\.9.*install the same version"):
        world.join("b", 1)


def test_open_and_fixed_worlds_dont_mix(world):
    world.join("a", 0)
    with pytest.raises(WorldMismatch, match="an open world"):
        world.join("b", 1, size=2)


def test_a_wrong_key_is_refused(world):
    a = world.join("a", 0)
    meeting = world.meeting()._replace(key=ClusterKey.fresh())
    said = "proof" if meeting.board is None else r"another job with another key uses .*: 'a' \(at "
    with pytest.raises(AuthenticationFailed, match=said):
        world.join("b", 1, meeting=meeting)
    assert names(a) == ["a"]
    assert world.join("b", 1).worker.rpc_sync("a", simulated.who) == "a", "they go on as before"


def test_workers_meet_though_the_key_is_being_changed(world, tmp_path):
    added = next_keys((KEY,), "add")
    for name, keys in (("a", (KEY,)), ("b", added), ("c", next_keys(added, "use"))):
        write_keys(tmp_path / name, keys)
    a = world.join("a", 0, meeting=world.meeting()._replace(key=KeyFile(tmp_path / "a")))
    b = world.join("b", 1, meeting=world.meeting()._replace(key=KeyFile(tmp_path / "b")))
    assert b.worker.rpc_sync("a", simulated.who) == "a"
    # The one that runs takes the file of the first step, and the last one comes with the second.
    write_keys(tmp_path / "a", added)
    c = world.join("c", 2, meeting=world.meeting()._replace(key=KeyFile(tmp_path / "c")))
    assert names(c) == ["a", "b", "c"]
    assert eventually(lambda: names(a) == ["a", "b", "c"])
    assert a.worker.rpc_sync("c", simulated.who) == "c"
    assert c.worker.rpc_sync("b", simulated.who) == "b"


def test_rank_0_may_end_and_others_still_come(board_world):
    a, b = board_world.join("a", 0), board_world.join("b", 1)
    assert b.worker.rpc_sync("a", simulated.who) == "a"
    a.close()
    c = board_world.join("c", 2)
    assert b.worker.rpc_sync("c", simulated.who) == "c"
    assert c.worker.rpc_sync("b", simulated.who) == "b"
    assert names(c) == ["b", "c"]


def test_ranks_that_are_not_given_are_given_out_once_each(board_world):
    with ThreadPoolExecutor() as threads:
        joining = [threads.submit(board_world.join, f"w{number}") for number in range(6)]
        joined = [each.result(PATIENCE) for each in joining]
    assert sorted(each.worker.id for each in joined) == list(range(6))
    first = joined[2]
    first.worker.close()
    assert board_world.join("w2").worker.id == first.worker.id, "it is the same role"
    joined[3].close()
    assert board_world.join("new").worker.id == 6, "ids are not used twice"


def test_a_fixed_world_meets_on_a_board_and_leaves_together(board_world):
    with ThreadPoolExecutor() as threads:
        joining = [threads.submit(board_world.join, n, r, 3) for r, n in enumerate("abc")]
        a, b, c = (each.result(PATIENCE) for each in joining)
        assert a.worker.rpc_sync("c", simulated.who) == "c"
        leaving = [threads.submit(each.leave, PATIENCE) for each in (a, b)]
        assert c.worker.rpc_sync("b", simulated.who) == "b"
        assert not any(each.done() for each in leaving)
        c.leave(PATIENCE)
        for each in leaving:
            each.result(PATIENCE)


def test_too_few_at_a_board_are_named_and_so_is_who_came_with_another_key(
    board_world, caplog, monkeypatch
):
    clock = Clock()
    monkeypatch.setattr(board_roster, "time", clock)

    def join_wrongly(joining):
        assert eventually(lambda: board_world.meeting().board.read(0))
        meeting = board_world.meeting()._replace(key=ClusterKey.fresh())
        with pytest.raises(AuthenticationFailed, match="another job with another key"):
            board_world.join("b", 1, 2, meeting=meeting)
        assert not joining.done()
        # One that stays, since it came with its own others.
        held = BoardRoster(meeting.board, meeting.key)
        held.post(Came(Card("b", 1, 2, "unix:///nowhere", 7)))

    with ThreadPoolExecutor() as threads:
        joining = threads.submit(board_world.join, "a", 0, 2, join_timeout=3)
        join_wrongly(joining)
        # It came twice, and the one who waits has read of both before the time is over.
        strange = "with another key came 'b'"
        assert eventually(lambda: caplog.text.count(strange) == 2)
        assert eventually(lambda: clock.sleep(1.0) or joining.done())
        said = r"1 of 2 workers came .*: 'a'; with another key came 'b' \(at unix:.*and key\?"
        with pytest.raises(CallTimeout, match=said):
            joining.result(PATIENCE)


def test_what_is_no_entry_and_who_died_with_another_key_are_passed_over(board_world):
    meeting = board_world.meeting()
    meeting.board.post("sömething else")
    BoardRoster(meeting.board, ClusterKey.fresh()).post(Came(Card("x", 0, OPEN, "unix:///n", 7)))
    assert names(board_world.join("a", 0)) == ["a"]
    meeting.board.close()


def test_a_life_that_is_over_is_not_met_again_though_its_process_goes_on(board_world):
    a, b = board_world.join("a", 0), board_world.join("b", 1)
    assert a.worker.rpc_sync("b", simulated.who) == "b"
    # As if it had been stopped: another takes its place, then it wakes up.
    a.roster.follow(lambda _: None)
    membership_module.forget(a.worker, "b")
    assert "b" not in names(a)
    with pytest.raises(WorkerLost):
        b.worker.rpc_sync("a", simulated.who, timeout=5)
    assert "b" not in names(a)


def test_changes_are_told_in_order_and_not_after_the_end(board_world):
    seen = []
    a = board_world.join("a", 0)
    a.watchers.append(seen.append)
    b = board_world.join("b", 1)
    b.close()
    assert eventually(lambda: len(seen) == 2)
    assert isinstance(seen[0], Came)
    assert (seen[1].name, seen[1].incarnation) == ("b", b.worker.info.incarnation)
    a.close()
    assert [t.name for t in threading.enumerate() if t.name == "telegrad-roster-a"] == [] or (
        eventually(lambda: "telegrad-roster-a" not in [t.name for t in threading.enumerate()])
    )


def test_of_two_that_come_at_the_same_time_with_one_name_one_is_refused(board_world):
    board_world.join("a", 0)
    with ThreadPoolExecutor() as threads:
        joining = [threads.submit(board_world.join, "b", 1) for _ in range(2)]
        errors = [each.exception(PATIENCE) for each in joining]
    assert sum(error is None for error in errors) == 1
    (refused,) = filter(None, errors)
    assert isinstance(refused, UsageError)


def test_a_card_travels_as_it_is():
    card = Card("a", 1, OPEN, "unix:///x", 7, "s")
    assert msgspec.json.decode(msgspec.json.encode(Came(card)), type=Came) == Came(card)


def test_a_board_without_a_follower_tells_nobody(tmp_path):
    roster = BoardRoster(DirectoryBoard(tmp_path / "b"), KEY)
    roster.leave()
    roster.refresh()
    roster.close()
    roster.close()
