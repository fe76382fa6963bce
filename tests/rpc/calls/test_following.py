"""What follows from a future: settled whatever the callback does, in the context of its giver."""

import contextvars
import sys
import threading

import pytest
from tests.rpc import simulated
from tests.rpc.inside import has_callbacks
from tests.rpc.neighbours import eventually, neighbours

from telegrad.errors import CallTimeout, UsageError
from telegrad.rpc.calls.future import Future
from telegrad.rpc.calls.future_group import collect_all, wait_all
from telegrad.rpc.calls.incoming import async_execution
from telegrad.rpc.calls.request import current_request
from telegrad.rpc.wire.failures import RemoteFailure

ENDS = [ZeroDivisionError, SystemExit, KeyboardInterrupt, GeneratorExit]


def fail_with(kind):
    raise kind(3)


def fail_by_callback(kind):
    def callback(_):
        raise kind(3)

    return callback


@pytest.mark.parametrize("gather", [wait_all, collect_all])
def test_what_is_no_future_is_named_by_its_position(gather):
    with pytest.raises(UsageError, match=r"expected futures, .* got int at position 1"):
        gather([Future(), 2])
    with pytest.raises(
        UsageError, match=r"expected a list of futures, got a Future: write \[future"
    ):
        gather(Future())


@pytest.mark.parametrize("ask", [Future.value, Future.exception])
def test_the_outcome_of_a_future_that_is_pending_is_not_taken_for_none(ask):
    with pytest.raises(UsageError, match=r"wait\(\) for it, or ask done\(\) first"):
        ask(Future())


def test_a_thread_that_polls_many_futures_leaves_nothing_at_them():
    futures = [Future(), Future()]
    # One that is given twice is waited for twice.
    given = [*futures, futures[0]]
    for _ in range(3):
        with pytest.raises(CallTimeout, match="not settled within 0 s"):
            wait_all(given, timeout=0)
    assert not any(map(has_callbacks, futures))
    futures[0].set_result(1)
    with pytest.raises(CallTimeout):
        wait_all(given, timeout=0)
    futures[1].set_result(2)
    assert wait_all(given, timeout=0) == [1, 2, 1]


@pytest.mark.parametrize("kind", ENDS)
@pytest.mark.parametrize("is_done", [True, False])
def test_a_callback_that_raises_anything_settles_what_follows(kind, is_done):
    future = Future()
    if is_done:
        future.set_result(1)
    following = future.then(fail_by_callback(kind))
    if not is_done:
        future.set_result(1)
    with pytest.raises(kind):
        following.wait(5)


@pytest.mark.parametrize("kind", ENDS)
def test_what_another_workers_function_raised_passes_through_then(kind):
    with neighbours("a", "b") as (a, _):
        following = a.rpc_async("b", fail_with, (kind,)).then(lambda done: done.value())
        with pytest.raises(ZeroDivisionError if kind is ZeroDivisionError else RemoteFailure):
            following.wait(5)


@pytest.mark.parametrize("to", ["a", "b"])
def test_a_function_that_exits_where_it_was_called_ends_nobody_elses_program(to):
    with neighbours("a", "b") as (a, _):
        for call in (
            lambda: a.rpc_sync(to, sys.exit, (3,)),
            lambda: a.remote(to, sys.exit, (3,)).to_here(),
            lambda: a.remote(to, exit_later).to_here(),
        ):
            with pytest.raises(RemoteFailure, match=r"^SystemExit: 3"):
                call()


@async_execution
def exit_later():
    future = Future()
    future.set_exception(SystemExit(3))
    return future


@pytest.mark.parametrize("verb", ["add_done_callback", "then"])
@pytest.mark.parametrize("is_done", [True, False])
def test_what_cant_be_called_is_refused_at_once(verb, is_done):
    future = Future()
    if is_done:
        future.set_result(1)
    with pytest.raises(UsageError, match=r"expected a function that takes the future .* NoneType"):
        getattr(future, verb)(None)
    if not is_done:
        future.set_result(1)
    assert future.wait() == 1


def test_a_callback_that_wants_to_exit_is_logged_and_keeps_nobody_from_running(caplog):
    future, ran = Future(), []
    future.add_done_callback(fail_by_callback(SystemExit))
    future.add_done_callback(ran.append)
    future.set_result(1)
    future.add_done_callback(fail_by_callback(SystemExit))
    assert ran == [future]
    assert caplog.text.count("a callback of a future failed") == 2


def test_an_interrupted_callback_raises_after_the_others_ran():
    future, ran = Future(), []
    future.add_done_callback(fail_by_callback(KeyboardInterrupt))
    future.add_done_callback(ran.append)
    with pytest.raises(KeyboardInterrupt):
        future.set_result(1)
    assert ran == [future]


def test_a_callback_that_wants_to_exit_ends_no_thread_of_the_worker(caplog):
    with neighbours("a", "b") as (a, _):
        done = a.rpc_async("b", simulated.who)
        done.add_done_callback(fail_by_callback(SystemExit))
        assert eventually(lambda: "a callback of a future failed" in caplog.text)
        assert a.rpc_async("b", simulated.who).then(lambda done: done.value()).wait(5) == "b"
    assert "still run after shutdown" not in caplog.text


# With what its giver was at.


@pytest.mark.parametrize("settle", [Future.set_result, Future.set_exception])
def test_a_callback_runs_with_the_contextvars_of_its_giver_on_any_thread(settle):
    number = contextvars.ContextVar("number")
    future, seen = Future(), []
    number.set(1)
    following = future.then(lambda _: number.get())
    future.add_done_callback(lambda _: seen.append(number.get()))
    number.set(2)
    thread = threading.Thread(target=settle, args=(future, ValueError()))
    thread.start()
    thread.join(10)
    assert (following.wait(10), seen) == (1, [1])


def request_in_a_callback():
    settled = Future()
    following = settled.then(lambda _: current_request.get())
    threading.Thread(target=settled.set_result, args=(None,)).start()
    request = following.wait(10)
    return request.worker.name, request.can_nest


def test_the_callback_of_a_handler_has_its_worker_but_not_the_stack_that_waits_for_it():
    with neighbours("a", "b") as (a, _):
        assert a.rpc_sync("b", request_in_a_callback) == ("b", False)
