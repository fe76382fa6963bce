"""A lock over futures: one thread has it, and each that waits gets it, whatever others do."""

import threading

import pytest

from telegrad.distributed.passes.future_lock import FutureLock
from telegrad.errors import CallTimeout
from telegrad.rpc.calls.future import Future


def test_many_threads_have_the_lock_one_at_a_time_and_all_get_it():
    lock, inside, most, had = FutureLock(), [], [], []

    def take_many():
        for _ in range(300):
            with lock:
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


def test_one_that_gives_up_waiting_leaves_the_lock_to_the_next(monkeypatch):
    lock = FutureLock()
    wait = Future.wait
    entered = threading.Event()

    def give_up(self, timeout=None):
        if threading.current_thread() is threading.main_thread():
            raise CallTimeout("enough")
        return wait(self, timeout)

    monkeypatch.setattr(Future, "wait", give_up)

    def enter():
        with lock:
            entered.set()

    with lock:
        with pytest.raises(CallTimeout), lock:
            pytest.fail("another has the lock")
        thread = threading.Thread(target=enter)
        thread.start()
    assert entered.wait(10)
    thread.join(10)
    with lock:
        assert not lock._waiting


def test_a_lock_that_came_as_its_thread_gave_up_goes_on_to_the_next(monkeypatch):
    lock = FutureLock()

    def leave_then_give_up(self, timeout=None):
        lock.__exit__()
        assert self.done()
        raise CallTimeout("enough")

    monkeypatch.setattr(Future, "wait", leave_then_give_up)
    lock.__enter__()
    with pytest.raises(CallTimeout):
        lock.__enter__()
    with lock:
        pass


def test_those_who_wait_when_it_has_ended_get_the_error_though_nobody_has_the_lock():
    lock, errors, waits = FutureLock(), [], threading.Event()
    # As Ctrl-C may leave it.
    lock._inner.acquire()

    def take():
        waits.set()
        try:
            with lock:
                pass
        except CallTimeout as error:
            errors.append(str(error))

    first = threading.Thread(target=take)
    first.start()
    assert waits.wait(10)
    lock.end(CallTimeout("it failed"))
    later = threading.Thread(target=take)
    later.start()
    for thread in (first, later):
        thread.join(10)
    assert errors == ["it failed", "it failed"]
    assert not lock._waiting


def test_all_who_wait_get_the_error_while_others_come_and_go():
    lock, waiting, left = FutureLock(), [Future() for _ in range(2000)], []
    # As Ctrl-C may leave it.
    lock._inner.acquire()
    lock._waiting.extend(waiting)

    def come_and_go():
        for _ in range(200):
            with pytest.raises(CallTimeout), lock:
                pytest.fail("it has ended")
        left.append(None)

    lock.end(CallTimeout("it failed"))
    threads = [threading.Thread(target=come_and_go) for _ in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        lock.end(CallTimeout("it failed"))
    assert len(left) == 2
    assert all(type(each.exception()) is CallTimeout for each in waiting)
