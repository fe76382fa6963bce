"""Workers that met at rank 0, and lose and find each other again before they leave."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from tests.rpc import simulated
from tests.rpc.connected import PATIENCE
from tests.rpc.neighbours import eventually

from telegrad.errors import UsageError
from telegrad.rpc.current import current_worker
from telegrad.rpc.membership.directory_board import DirectoryBoard
from telegrad.rpc.membership.membership import Membership
from telegrad.rpc.membership.rendezvous import Meeting
from telegrad.rpc.membership.served_roster import ServedRoster
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.options import Options
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.transport import PrivateDirectory


def incarnation():
    return current_worker().info.incarnation


@contextlib.contextmanager
def members(*names, quiet=()):
    """Yield the memberships of a cluster in one process, rank 0's first, and threads to use.

    Those that are `quiet` listen nowhere.
    """
    with PrivateDirectory.make() as directory, ThreadPoolExecutor() as threads:
        meeting = Meeting(directory.socket_address("meeting"), ClusterKey.fresh())
        joining = [
            threads.submit(
                Membership,
                name,
                rank,
                len(names),
                Options(listen=name not in quiet),
                meeting,
                lambda _: None,
            )
            for rank, name in enumerate(names)
        ]
        with contextlib.ExitStack() as stack:
            joined = [each.result(PATIENCE) for each in joining]
            for member in joined:
                stack.callback(member.close)
            yield threads, *joined


def start_again(threads, rank_0, options=None):
    """Return the membership of another worker named b, in the place of the one before."""
    meeting = Meeting(rank_0.roster.place.address, rank_0.worker.host.identity.key)
    joining = threads.submit(Membership, "b", 1, 2, options or Options(), meeting, lambda _: None)
    return joining.result(PATIENCE)


def test_rank_0_waits_for_a_worker_that_it_lost_and_met_again():
    with members("a", "b") as (threads, a, b):
        assert a.worker.rpc_sync("b", simulated.who) == "b"
        a.worker.endpoint_lost(a.worker.peers.get("b").outgoing, ConnectionError("silence"))
        assert eventually(lambda: b.worker.peers.get("a").lost is not None)
        assert b.worker.rpc_sync("a", simulated.who) == "a"
        leaving = threads.submit(a.leave, PATIENCE)
        assert eventually(lambda: bool(a.leaving.tokens) or leaving.done())
        assert b.worker.rpc_sync("a", simulated.who) == "a"
        assert not leaving.done(), "b still works, and calls a"
        b.leave(PATIENCE)
        leaving.result(PATIENCE)


def test_rank_0_waits_for_a_worker_that_was_started_again_and_has_not_met_it_yet():
    with members("a", "b") as (threads, a, b):
        assert a.worker.rpc_sync("b", simulated.who) == "b"
        b.close()
        assert eventually(lambda: "b" in a.leaving.gone)
        after = start_again(threads, a)
        try:
            assert eventually(lambda: "b" not in a.leaving.gone)
            leaving = threads.submit(a.leave, PATIENCE)
            assert eventually(lambda: bool(a.leaving.tokens) or leaving.done())
            assert not leaving.done(), "b has not reported"
            after.leave(PATIENCE)
            leaving.result(PATIENCE)
        finally:
            after.close()


def test_the_meeting_place_is_closed_before_anyone_is_told_to_go():
    with members("a", "b") as (threads, a, b):
        leaving = threads.submit(a.leave, PATIENCE)
        b.leave(PATIENCE)
        assert a.roster.place.closed
        leaving.result(PATIENCE)


def test_a_worker_that_stays_lost_is_not_waited_for():
    with members("a", "b") as (threads, a, b):
        assert a.worker.rpc_sync("b", simulated.who) == "b"
        b.close()
        assert eventually(lambda: a.worker.peers.get("b").lost is not None)
        threads.submit(a.leave, 10 * PATIENCE).result(PATIENCE)


def test_the_list_of_those_who_met_does_not_bring_back_one_that_was_started_again(monkeypatch):
    enter = ServedRoster.enter
    news = WorkerInfo("a", 0, 1), "unix:///tmp/new"

    def enter_late(self, worker, *args):
        """Hear that rank 0 has been started again, then who had met."""
        found = enter(self, worker, *args)
        if worker.name == "b":
            worker.add_peer(*news)
        return found

    monkeypatch.setattr(ServedRoster, "enter", enter_late)
    with members("a", "b") as (_, _, b):
        known = b.worker.peers.get("a")
        assert (known.info, known.address) == news


def test_a_second_job_does_not_displace_a_worker_that_lives_but_one_that_ended():
    with members("a", "b") as (threads, a, b):
        under_way = a.worker.rpc_async("b", simulated.never)
        with pytest.raises(UsageError, match=r"worker named 'b' already .* and it lives"):
            start_again(threads, a)
        assert a.worker.rpc_sync("b", simulated.who) == "b"
        assert not under_way.done(), "nothing was lost"
        b.close()
        after = start_again(threads, a)
        try:
            # The newcomer is told that it is in before the others are.
            assert eventually(lambda: a.worker.peers.get("b").info == after.worker.info)
            assert a.worker.rpc_sync("b", incarnation) == after.worker.info.incarnation
        finally:
            after.close()


def test_another_at_the_address_of_one_that_ended_is_not_taken_for_it():
    with members("a", "b") as (_, a, b):
        roster = a.roster
        (joined,) = (each for each in roster.place.everyone() if each.name == "b")
        assert roster.is_alive(joined)
        assert not roster.is_alive(msgspec.structs.replace(joined, incarnation=1))
        b.close()
        assert not roster.is_alive(joined)


def test_a_worker_that_listens_nowhere_joins_is_called_and_leaves_with_the_others():
    with members("a", "b", "c", quiet=["c"]) as (threads, a, b, c):
        for each in (a, b):
            assert each.worker.rpc_sync("c", simulated.who) == "c"
        leaving = [threads.submit(each.leave, PATIENCE) for each in (a, b)]
        assert c.worker.rpc_sync("b", simulated.who) == "b"
        assert not any(each.done() for each in leaving), "c still works"
        c.leave(PATIENCE)
        for each in leaving:
            each.result(PATIENCE)


def test_a_worker_that_listens_nowhere_comes_back_in_its_place():
    with members("a", "b", quiet=["b"]) as (threads, a, b):
        assert a.worker.rpc_sync("b", incarnation) == b.worker.info.incarnation
        b.close()
        after = start_again(threads, a, Options(listen=False))
        try:
            # Rank 0 lets it in before it tells anyone of that.
            assert eventually(lambda: a.worker.find("b").info == after.worker.info)
            assert a.worker.rpc_sync("b", incarnation) == after.worker.info.incarnation
        finally:
            after.close()


def test_of_two_that_listen_nowhere_and_live_the_second_is_refused():
    with (
        members("a", "b", quiet=["b"]) as (threads, a, _),
        pytest.raises(UsageError, match=r"a worker named 'b' already .* and it lives"),
    ):
        start_again(threads, a, Options(listen=False))


@pytest.mark.parametrize(("rank", "board"), [(0, False), (1, True)])
def test_rank_0_and_those_who_meet_on_a_board_have_to_listen(tmp_path, rank, board):
    meeting = Meeting(
        "" if board else "tcp://127.0.0.1:0",
        ClusterKey.fresh(),
        board=DirectoryBoard(tmp_path / "board") if board else None,
    )
    with pytest.raises(UsageError, match=r"expected 'b' to join at another worker's address.*rank"):
        Membership("b", rank, 2, Options(listen=False), meeting, lambda _: None)
