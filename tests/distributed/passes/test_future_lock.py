"""Turns: one at a time, and whoever waits gets one, whatever the others do."""

import threading

import pytest

from telegrad.distributed.passes.future_lock import FutureLock
from telegrad.errors import CallTimeout
from telegrad.rpc.calls.future import Future


def test_many_threads_have_one_turn_at_a_time_and_all_have_theirs():
    turns, inside, most, had = FutureLock(), [], [], []

    def take_many():
        for _ in range(300):
            with turns:
                inside.append(None)
                most.append(len(inside))
                inside.pop()
        had.append(None)

    threads = [threading.Thread(target=take_many) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(had) == 6
    assert set(most) == {1}


def test_whoever_gives_up_waiting_leaves_its_turn_to_the_next(monkeypatch):
    turns = FutureLock()
    wait = Future.wait
    entered = threading.Event()

    def give_up(self, timeout=None):
        if threading.current_thread() is threading.main_thread():
            raise CallTimeout("enough")
        return wait(self, timeout)

    monkeypatch.setattr(Future, "wait", give_up)

    def enter():
        with turns:
            entered.set()

    with turns:
        with pytest.raises(CallTimeout), turns:
            pytest.fail("it was another's turn")
        thread = threading.Thread(target=enter)
        thread.start()
    assert entered.wait(10)
    thread.join(10)
    with turns:
        assert not turns._waiting


def test_a_turn_that_came_as_its_thread_gave_up_goes_on_to_the_next(monkeypatch):
    turns = FutureLock()

    def leave_then_give_up(self, timeout=None):
        turns.__exit__()
        assert self.done()
        raise CallTimeout("enough")

    monkeypatch.setattr(Future, "wait", leave_then_give_up)
    turns.__enter__()
    with pytest.raises(CallTimeout):
        turns.__enter__()
    with turns:
        pass


def test_whoever_waits_when_all_has_ended_gets_the_error_though_nobody_has_the_turn():
    turns, errors, waits = FutureLock(), [], threading.Event()
    # As Ctrl-C may leave it.
    turns._turn.acquire()

    def take():
        waits.set()
        try:
            with turns:
                pass
        except CallTimeout as error:
            errors.append(str(error))

    first = threading.Thread(target=take)
    first.start()
    assert waits.wait(10)
    turns.end(CallTimeout("it failed"))
    later = threading.Thread(target=take)
    later.start()
    for thread in (first, later):
        thread.join(10)
    assert errors == ["it failed", "it failed"]
    assert not turns._waiting
