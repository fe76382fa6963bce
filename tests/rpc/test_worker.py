"""Calls between workers over real sockets, several of them in this process."""

import asyncio
import contextlib
import gc
import math
import operator
import socket
import threading
import time
import types

import numpy as np
import pytest
from tests.rpc import simulated
from tests.rpc.inside import pool_of, writing
from tests.rpc.neighbours import eventually, neighbours

from telegrad.errors import (
    CallTimeout,
    ContextError,
    NotInitialized,
    ProtocolViolation,
    Refused,
    UnknownWorker,
    Unserializable,
    UsageError,
    WorkerLost,
)
from telegrad.rpc.calls.future import Future
from telegrad.rpc.calls.future_group import collect_all, wait_all
from telegrad.rpc.driver import frame_writer
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.options import Options
from telegrad.rpc.security.introduction import Limits
from telegrad.rpc.transport.segments import SEGMENTS
from telegrad.rpc.wire.frames import ANSWER, CALL, PLACED, Frame, Placement, pack


@pytest.fixture
def pair():
    with neighbours("a", "b") as workers:
        yield workers


@pytest.mark.parametrize("to", ["b", 1, WorkerInfo("b", 1)])
def test_a_worker_is_called_by_name_rank_or_info(pair, to):
    assert pair[0].rpc_sync(to, simulated.who) == "b"


def test_arrays_arrive_by_value_and_writable(pair):
    x = np.arange(9.0).reshape(3, 3)
    y = pair[0].rpc_sync("b", operator.add, (x, x))
    assert np.array_equal(y, 2 * x)
    y[0, 0] = 5


@pytest.mark.parametrize("size", [100_000, 300_000, 3_000_000])
@pytest.mark.parametrize("tcp", [False, True])
def test_large_arrays_make_the_round_trip(size, tcp):
    with neighbours("a", "b", tcp=tcp) as (a, _):
        sent = np.arange(size // 8, dtype=np.float64)
        for _ in range(4):
            got = a.rpc_sync("b", np.negative, (sent,))
            assert np.array_equal(got, -sent)
            got += 1


def test_a_large_header_without_arrays_makes_the_round_trip(pair):
    numbers = tuple(range(100_000))
    assert pair[0].rpc_sync("b", max, numbers) == 99_999
    assert pair[0].rpc_sync("b", tuple, (numbers,)) == numbers


def test_without_shared_memory_large_arrays_go_over_the_socket():
    with neighbours("a", "b", options=Options(segments=False)) as (a, _):
        sent = np.arange(200_000.0)
        assert np.array_equal(a.rpc_sync("b", np.negative, (sent,)), -sent)


def test_shared_memory_is_used_again_when_arrays_are_gone(pair):
    a, _ = pair
    for _ in range(50):
        a.rpc_sync("b", np.negative, (np.ones(100_000),))
    assert len(a.host.segment_pool) <= 4


def test_calls_back_to_the_caller_nest_to_any_depth_with_few_threads(pair):
    a, _ = pair
    before = threading.active_count()
    assert a.rpc_sync("b", simulated.bounce, ("a", 300)) == 300
    assert threading.active_count() - before < 60


def test_many_calls_in_flight_come_back_to_whoever_asked(pair):
    a, _ = pair
    calls = [a.rpc_async("b", operator.neg, (number,)) for number in range(300)]
    assert wait_all(calls) == [-number for number in range(300)]


def test_threads_share_a_connection(pair):
    a, b = pair
    wrong = []

    def work(worker, to, base):
        for number in range(200):
            if worker.rpc_sync(to, operator.add, (base, number)) != base + number:
                wrong.append((base, number))

    threads = [threading.Thread(target=work, args=(a, "b", 1000 * n)) for n in range(4)]
    threads += [threading.Thread(target=work, args=(b, "a", 1000 * n)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


def test_a_slow_handler_does_not_keep_others_waiting(pair):
    a, b = pair
    release = threading.Event()
    b.register_service("hold", lambda request: (release.wait(20), request.reply()))
    held = a.outgoing.service("b", "hold", None, (), math.inf, waits=False)
    assert a.rpc_sync("b", simulated.who, timeout=10) == "b"
    assert not held.done()
    release.set()
    held.wait(10)


def test_handlers_that_block_run_side_by_side(pair):
    a, _ = pair
    # All twenty must be inside at once before any of them returns.
    calls = [a.rpc_async("b", simulated.meet, timeout=30) for _ in range(20)]
    assert wait_all(calls) == ["met"] * 20


def test_a_deadline_fires_although_the_callee_never_answers(pair):
    assert pair[0].rpc_sync("b", simulated.who) == "b"
    with pytest.raises(CallTimeout, match="worker 'b' did not answer 'never'"):
        pair[0].rpc_sync("b", simulated.never, timeout=0.2)


def test_a_deadline_of_a_call_nobody_waits_for_fires_too(pair):
    assert pair[0].rpc_sync("b", simulated.who) == "b"
    call = pair[0].rpc_async("b", simulated.never, timeout=0.1)
    assert eventually(call.done)
    with pytest.raises(CallTimeout):
        call.value()


def test_waiting_for_a_future_with_a_timeout_leaves_the_call_alone(pair):
    call = pair[0].rpc_async("b", simulated.never, timeout=30)
    with pytest.raises(CallTimeout, match="not settled within"):
        call.wait(0.05)
    assert not call.done()


def test_a_remote_exception_has_its_type_its_traceback_and_the_workers_name(pair):
    with pytest.raises(KeyError, match="nope") as caught:
        pair[0].rpc_sync("b", simulated.fail, ("nope",))
    note = caught.value.__notes__[0]
    assert "raised on worker 'b'" in note
    assert "in fail" in note


def test_a_callback_may_call_again(pair):
    a, _ = pair
    following = a.rpc_async("b", operator.neg, (1,)).then(
        lambda done: a.rpc_sync("b", operator.neg, (done.value(),))
    )
    assert following.wait(10) == 1


def test_futures_can_be_awaited_and_collected(pair):
    a, _ = pair

    async def together():
        calls = [a.rpc_async("b", operator.neg, (number,)) for number in range(3)]
        return [await call for call in calls]

    assert asyncio.run(together()) == [0, -1, -2]
    calls = [a.rpc_async("b", operator.neg, (number,)) for number in range(3)]
    assert [call.value() for call in collect_all(calls).wait(10)] == [0, -1, -2]
    assert collect_all([]).wait(1) == []


def test_async_execution_answers_with_the_futures_value(pair):
    a, _ = pair
    assert a.rpc_sync("b", simulated.later, ("a",)) == "via a"
    with pytest.raises(TypeError, match="expected a Future"):
        a.rpc_sync("b", simulated.not_a_future)
    assert a.remote("b", simulated.later, ("a",)).to_here() == "via a"


def test_methods_marked_async_execution_answer_with_the_futures_value(pair):
    a, _ = pair
    counter = a.remote("b", simulated.Counter, ("at ",))
    assert counter.rpc_sync().add_from("a") == "at a"
    assert counter.rpc_async().add_from("b").wait(10) == "at ab"
    assert counter.remote().add_from("a").to_here() == "at aba"
    with pytest.raises(TypeError, match=r"expected a Future .*, got str"):
        counter.rpc_sync().add_nothing()


def test_a_future_that_is_asked_too_early_or_settled_twice_says_so():
    future: Future[int] = Future()
    assert repr(future) == "<Future: pending>"
    for ask in (future.value, future.exception):
        with pytest.raises(UsageError, match=r"yet: wait\(\) for it, or ask done\(\) first"):
            ask()
    with pytest.raises(UsageError, match="expected an exception, got str"):
        future.set_exception("an error")  # type: ignore[arg-type]
    future.set_exception(ValueError("x"))
    with pytest.raises(UsageError, match="settled already: set_exception may be called once"):
        future.set_exception(ValueError("y"))


def test_calls_to_oneself_copy(pair):
    a, _ = pair
    x = np.zeros(3)
    y = a.rpc_sync("a", np.asarray, (x,))
    y += 1
    assert x.tolist() == [0, 0, 0]
    assert a.rpc_async("a", simulated.who).wait(10) == "a"
    assert a.remote("a", simulated.who).to_here() == "a"
    with pytest.raises(KeyError):
        a.rpc_sync("a", simulated.fail, ("x",))
    with pytest.raises(Unserializable):
        a.rpc_sync("a", operator.neg, (threading.Lock(),))


def test_a_result_that_cannot_be_sent_is_the_callers_error(pair):
    with pytest.raises(Unserializable, match=r"result can't be sent: lock"):
        pair[0].rpc_sync("b", threading.Lock)


def test_an_unknown_worker_is_an_error_with_the_known_names(pair):
    for to in ("c", 7):
        with pytest.raises(UnknownWorker, match="the workers are 'a', 'b'"):
            pair[0].rpc_sync(to, simulated.who)


def test_a_negative_timeout_is_refused(pair):
    with pytest.raises(UsageError, match="timeout"):
        pair[0].rpc_sync("b", simulated.who, timeout=-3)


@pytest.mark.parametrize("timeout", [0, 1e7, 1e12, 1e300])
def test_a_timeout_may_be_longer_than_any_clock_counts(pair, timeout):
    a, _ = pair
    outcomes = []

    def ask():
        outcomes.extend(a.rpc_sync("b", simulated.who, timeout=timeout) for _ in range(20))
        outcomes.append(a.rpc_async("b", simulated.who, timeout=timeout).wait(timeout or None))

    # Several, so that some wait behind others.
    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert outcomes == ["b"] * 63
    future = Future()
    threading.Timer(0.01, future.set_result, (1,)).start()
    assert future.wait(timeout or None) == 1


def test_a_worker_that_shut_down_fails_open_calls_and_new_ones():
    with neighbours("a", "b") as (a, b):
        lost = []
        a.on_worker_lost(lambda who, error: lost.append((who.name, type(error))))
        call = a.rpc_async("b", simulated.never)
        assert eventually(lambda: bool(b.peers.get("a").incoming))
        b.close()
        with pytest.raises(WorkerLost, match="worker 'b' was lost: it has shut down"):
            call.wait(10)
        with pytest.raises(WorkerLost):
            a.rpc_sync("b", simulated.who, timeout=5)
        with pytest.raises(NotInitialized, match="'b' has shut down"):
            b.rpc_sync("a", simulated.who)
        assert eventually(lambda: lost == [("b", WorkerLost)])


def test_the_callers_own_shutdown_fails_its_open_calls():
    with neighbours("a", "b") as (a, _):
        call = a.rpc_async("b", simulated.never)
        a.close()
        with pytest.raises(NotInitialized):
            call.wait(10)


def test_what_follows_from_a_call_follows_even_when_all_threads_have_ended(pair, monkeypatch):
    gate = Future()
    monkeypatch.setattr(simulated, "GATE", [gate])
    call = pair[0].rpc_async("b", simulated.wait_for_gate)
    following = call.then(lambda done: type(done.exception()))
    pool_of(pair[0].host).close(0.0)
    pair[0].endpoint_lost(call.endpoint, ConnectionError("it broke"))
    gate.set_result("open")
    assert following.wait(5) is WorkerLost


def test_services_answer_later_and_from_another_thread(pair):
    a, b = pair
    requests = []
    b.register_service("later", requests.append, inline=True)
    b.register_service("fails", lambda request: 1 / 0, inline=True)
    content = [np.arange(3)]
    call = a.outgoing.service("b", "later", {"k": [1, 2]}, content, math.inf, waits=False)
    assert eventually(lambda: bool(requests))
    assert requests[0].frm.name == "a"
    assert requests[0].header == {"k": [1, 2]}
    thread = threading.Thread(target=requests[0].reply, args=("done", [requests[0].arrays[0] * 2]))
    thread.start()
    header, (array,) = call.wait(10)
    thread.join()
    assert header == "done"
    assert array.tolist() == [0, 2, 4]
    with pytest.raises(ZeroDivisionError):
        a.ask_service("b", "fails")
    with pytest.raises(Refused, match="no service 'nothing'"):
        a.ask_service("b", "nothing")


@pytest.mark.parametrize("inline", [True, False])
def test_a_reply_that_cannot_be_sent_is_the_askers_error(inline):
    options = Options(in_flight_bytes_of_peer=1 << 20)
    with neighbours("a", "b", options=options) as (a, b):
        b.register_service(
            "large", lambda request: request.reply(None, [np.ones(1 << 18)]), inline=inline
        )
        with pytest.raises(UsageError, match="more than the 1048576 that a takes"):
            a.ask_service("b", "large", timeout=5)
        assert a.rpc_sync("b", simulated.who) == "b"


def test_the_interceptor_sees_and_replaces_values_at_all_four_points(pair):
    a, b = pair
    seen = []

    class Interceptor:
        def __init__(self, name):
            self.name = name

        def outgoing_call(self, to, values):
            seen.append((self.name, "outgoing call", to.name, len(values)))
            values[0] = values[0] + 1
            return {"id": 7}

        def incoming_call(self, frm, extra, values):
            seen.append((self.name, "incoming call", frm.name, extra))
            values[0] = values[0] * 10
            return self

        def __enter__(self):
            seen.append((self.name, "enter"))

        def __exit__(self, *_):
            seen.append((self.name, "exit"))

        def outgoing_result(self, to, values):
            seen.append((self.name, "outgoing result", to.name, len(values)))
            return "back"

        def incoming_result(self, frm, call_extra, extra, values):
            seen.append((self.name, "incoming result", call_extra, extra))
            values[0] = -values[0]

        def failed_call(self, to, call_extra, error):
            seen.append((self.name, "failed", call_extra, type(error)))

    a.install(Interceptor("a"))
    b.install(Interceptor("b"))
    result = a.rpc_sync("b", simulated.fetch_first, ({"deep": [np.zeros(1)]},))
    assert result.tolist() == [-10.0]
    assert seen == [
        ("a", "outgoing call", "b", 1),
        ("b", "incoming call", "a", {"id": 7}),
        ("b", "enter"),
        ("b", "outgoing result", "a", 1),
        ("b", "exit"),
        ("a", "incoming result", {"id": 7}, "back"),
    ]
    seen.clear()
    with pytest.raises(KeyError):
        a.rpc_sync("b", simulated.fail_with, (np.zeros(1),))
    assert ("a", "failed", {"id": 7}, KeyError) in seen
    with pytest.raises(UsageError, match="interceptor already"):
        a.install(Interceptor("c"))


def test_the_interceptor_is_asked_about_an_answer_unless_it_is_none_to_a_call_without_extra(pair):
    a, b = pair
    asked = []

    class Interceptor:
        extra = None

        def outgoing_call(self, to, values):
            return self.extra

        def incoming_call(self, frm, extra, values):
            return None

        def outgoing_result(self, to, values):
            asked.append(values)

        def incoming_result(self, frm, call_extra, extra, values):
            return None

    a.install(Interceptor())
    b.install(Interceptor())
    assert a.rpc_sync("b", gc.enable) is None
    assert asked == []
    assert a.rpc_sync("b", abs, (-1,)) == 1
    a.interceptor.extra = "said"
    assert a.rpc_sync("b", gc.enable) is None
    assert asked == [[], []]


class Ordering:
    """An interceptor that has those who take a result call something first."""

    def __init__(self):
        self.calls = []

    def outgoing_call(self, to, values):
        return None

    def incoming_result(self, frm, call_extra, extra, values):
        return lambda: self.calls.append(len(values))


def test_every_thread_that_takes_a_result_calls_first_what_the_interceptor_returned(pair):
    a, _ = pair
    interceptor = Ordering()
    a.install(interceptor)
    future = a.rpc_async("b", simulated.fetch_first, ({"deep": [np.zeros(1)]},))
    assert interceptor.calls == []
    future.wait()
    assert interceptor.calls == [1]
    future.wait()
    future.value()
    assert interceptor.calls == [1, 1, 1]


def test_a_worker_that_leaves_tells_those_who_opened_something_for_it_once(pair):
    a, _ = pair
    told = []
    a.on_close(lambda: told.append(a.closed))
    a.close()
    a.close()
    assert told == [True]


class ToldOfFailures:
    """An interceptor that keeps what it is told of calls that failed."""

    def __init__(self):
        self.failed = []

    def outgoing_call(self, to, values):
        return "extra"

    def failed_call(self, to, call_extra, error):
        self.failed.append((call_extra, type(error)))


def test_the_interceptor_is_told_of_a_call_whose_answer_makes_no_sense(pair, monkeypatch):
    interceptor = ToldOfFailures()
    pair[0].install(interceptor)
    gate = Future()
    monkeypatch.setattr(simulated, "GATE", [gate])
    call = pair[0].rpc_async("b", simulated.wait_for_gate)
    with pytest.raises(ProtocolViolation):
        pair[0].receive(call.endpoint, Frame(ANSWER, 0, call.number, 0, b"nonsense", ()))
    gate.set_result("open")
    assert isinstance(call.exception(), ProtocolViolation)
    assert interceptor.failed == [("extra", ProtocolViolation)]


def test_the_interceptor_is_told_of_a_call_that_could_not_be_sent():
    interceptor = ToldOfFailures()
    with neighbours("a", "b", options=Options(in_flight_bytes_of_peer=2 << 20)) as (a, _):
        a.install(interceptor)
        with pytest.raises(UsageError, match="more than the 2097152 that b takes"):
            a.rpc_sync("b", len, (np.ones(1 << 20),))
        assert interceptor.failed == [("extra", UsageError)]
        assert not a.peers.get("b").outgoing.calls


def test_references_are_made_used_passed_and_freed():
    with neighbours("a", "b", "c") as (a, b, c):
        reference = a.remote("b", simulated.Counter, (5,))
        assert reference.rpc_sync().add(2) == 7
        assert reference.rpc_async().add(1).wait(10) == 8
        assert reference.remote().add(1).to_here() == 9
        assert a.rpc_sync("c", simulated.add_to, (reference, 1)) == 10
        assert reference.owner_name() == "b"
        assert not reference.is_owner()
        assert eventually(reference.confirmed_by_owner)
        with pytest.raises(UsageError, match="to_here"):
            reference.local_value()
        own = a.make_rref([1])
        assert own.is_owner()
        assert own.local_value() is own.to_here()
        assert a.rpc_sync("b", simulated.fetch, (own,)) == [1]
        del reference, own
        empty = {"owned": 0, "held": 0, "given": 0}
        for worker in (a, b, c):
            assert eventually(lambda worker=worker: worker.references.counts() == empty)


def test_a_reference_passed_on_at_once_is_fetched_from_an_owner_that_is_still_to_hear_of_it():
    for _ in range(10):
        # Fresh workers: the paths between them are opened while the messages are under way.
        with neighbours("a", "b", "c") as (a, _, _):
            made = [a.remote("b", simulated.made_elsewhere, ("c", i)) for i in range(20)]
            assert [each.to_here().to_here() for each in made] == list(range(20))


def test_a_call_without_a_deadline_waits_behind_others(pair):
    # Whoever is not the first to wait on a path sleeps until the one who reads has its answer.
    calls = [pair[0].rpc_async("b", operator.add, (i, i), timeout=0) for i in range(50)]
    got: list[int] = []
    threads = [
        threading.Thread(
            target=lambda i=i: got.append(pair[0].rpc_sync("b", operator.neg, (i,), timeout=0))
        )
        for i in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == sorted(-i for i in range(20))
    assert wait_all(calls) == [2 * i for i in range(50)]


def test_a_deadline_that_passes_while_the_worker_is_dialled_is_a_timeout(pair, monkeypatch):
    def dial(*_):
        raise WorkerLost("it did not answer")

    monkeypatch.setattr(pair[0].host, "dial", dial)
    with pytest.raises(CallTimeout, match="could not be reached before the deadline"):
        pair[0].rpc_sync("b", simulated.who, timeout=1e-9)
    with pytest.raises(WorkerLost, match="it did not answer"):
        pair[0].rpc_sync("b", simulated.who, timeout=100)


def test_only_a_call_that_has_run_shows_that_its_code_has_come(pair):
    shift = 5
    function = lambda x: x + shift
    made = pair[0].remote("b", function, (1,))
    assert eventually(made.confirmed_by_owner)
    sent = pair[0].peers.get("b").outgoing.sent_code
    digest = pair[0].codec.pack_call(function, (1,), None).function
    # The creation may be opened after another call that names the function by its digest.
    assert sent.get(digest) is False
    assert pair[0].rpc_sync("b", function, (2,)) == 7
    assert sent.get(digest) is True
    assert made.to_here() == 6


def test_code_of_a_call_that_failed_before_it_was_opened_is_sent_again(pair):
    class RefusesFirst:
        refused = 0

        def incoming_call(self, frm, extra, values):
            self.refused += 1
            if self.refused == 1:
                raise ContextError("not here")
            return contextlib.nullcontext()

        def outgoing_result(self, to, values):
            return None

    pair[1].install(RefusesFirst())
    shift = 5
    function = lambda x: x + shift
    with pytest.raises(ContextError, match="not here"):
        pair[0].rpc_sync("b", function, (1,))
    assert pair[0].rpc_sync("b", function, (2,)) == 7


def test_a_call_that_comes_before_the_worker_knows_all_others_waits_until_it_does(pair):
    a, b = pair
    joined = b.joined = Future()
    call = a.rpc_async("b", simulated.count, ("early",))
    made = a.remote("b", simulated.count, ("early",))
    assert eventually(made.confirmed_by_owner)
    assert "early" not in simulated.RUNS
    b.joined = None
    joined.set_result(None)
    assert sorted([call.wait(10), made.to_here()]) == [1, 2]


def test_threads_may_ask_together_whether_there_is_room_to_send(pair):
    pair[0].rpc_sync("b", simulated.who)
    link = pair[0].peers.get("b").outgoing
    found = []
    threads = [
        threading.Thread(target=lambda: found.append([link.can_send() for _ in range(2000)]))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(map(all, found))


async def wait_for_ever():
    await asyncio.Event().wait()


def test_a_worker_says_that_it_leaves_though_a_thread_has_just_written_to_that_peer(monkeypatch):
    with neighbours("a", "b") as (a, b):
        call = a.rpc_async("b", wait_for_ever)
        assert a.rpc_sync("b", simulated.who) == "b"
        call.add_done_callback(lambda _: None)  # so that the end is read at once
        link = b.peers.get("a").incoming
        naps = []

        def sleep(seconds):
            naps.append(seconds)
            if len(naps) == 5:
                just_written.close()

        monkeypatch.setattr(
            frame_writer, "time", types.SimpleNamespace(sleep=sleep, monotonic=time.monotonic)
        )
        with contextlib.ExitStack() as just_written:
            just_written.enter_context(writing(link))
            b.close()
        with pytest.raises(WorkerLost, match="it has shut down"):
            call.wait()


def test_a_worker_that_made_a_value_for_another_is_quiet_again(pair):
    made = pair[0].remote("b", simulated.Counter, (5,))
    failed = pair[0].remote("b", simulated.fail, ("broken",))
    assert made.rpc_sync().add(1) == 6
    with pytest.raises(KeyError):
        failed.to_here()
    assert [worker.is_quiet(5.0) for worker in pair] == [True, True]


def test_a_worker_is_quiet_again_when_a_call_that_was_given_up_has_run(pair, monkeypatch):
    a, b = pair
    gate = Future()
    monkeypatch.setattr(simulated, "GATE", [gate])
    # So that the call leaves, however long the two take to meet.
    assert a.rpc_sync("b", simulated.who) == "b"
    with pytest.raises(CallTimeout):
        a.rpc_sync("b", simulated.wait_for_gate, timeout=0.05)
    path = b.peers.get("a").incoming
    assert eventually(lambda: path.unwanted)
    gate.set_result("open")
    assert b.is_quiet(5.0)
    assert not path.unwanted


def test_a_worker_that_makes_a_value_for_itself_is_not_quiet_meanwhile(pair, monkeypatch):
    gate = Future()
    monkeypatch.setattr(simulated, "GATE", [gate])
    made = pair[0].remote("a", simulated.wait_for_gate)
    was_quiet = pair[0].is_quiet(0.0)
    gate.set_result("open")
    assert made.to_here() == "open"
    assert not was_quiet
    assert pair[0].is_quiet(5.0)


def test_a_reference_to_a_failed_value_raises_its_error(pair):
    reference = pair[0].remote("b", simulated.fail, ("broken",))
    with pytest.raises(KeyError, match="broken"):
        reference.to_here()


class UsesReferencesAtItsEnd:
    def __init__(self, worker, found):
        self.worker, self.found = worker, found

    def __del__(self):
        self.worker.make_rref("another")
        self.found.append(self.worker.references.counts()["owned"])


def test_the_end_of_a_value_may_use_references(pair):
    found = []
    pair[0].make_rref(UsesReferencesAtItsEnd(pair[0], found))
    assert eventually(lambda: len(found) == 1)
    kept = pair[0].make_rref(UsesReferencesAtItsEnd(pair[0], found))
    pair[0].close()
    assert eventually(lambda: len(found) == 2)
    assert kept.is_owner()


def test_a_reference_is_not_pickled(pair):
    import pickle

    with pytest.raises(Unserializable, match="would not be counted"):
        pickle.dumps(pair[0].make_rref(1))


def test_a_strict_worker_serves_what_is_exposed_and_nothing_else():
    with neighbours("a", "b", options=Options(strict=True)) as (a, _):
        assert a.rpc_sync("b", simulated.shown, ([1, {"x": np.ones(2)}],)) == 2
        with pytest.raises(Refused, match=r"@rpc\.expose"):
            a.rpc_sync("b", operator.neg, (1,))
        reference = a.remote("b", simulated.shown, ([1],))
        assert reference.to_here() == 1


def test_two_threads_may_wait_for_one_future():
    future: Future[int] = Future()
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(future.wait(10))) for _ in range(3)]
    for thread in threads:
        thread.start()
    future.set_result(4)
    for thread in threads:
        thread.join(10)
    assert results == [4, 4, 4]
    with pytest.raises(UsageError, match="settled already"):
        future.set_result(5)


def test_a_peer_that_sends_garbage_after_the_handshake_is_cut_off_and_others_are_not(caplog):
    with neighbours("a", "b", "c") as (a, _, c):
        a.rpc_sync("b", simulated.who)
        c.rpc_sync("b", simulated.who)
        call = a.rpc_async("b", simulated.never)
        a.peers.get("b").outgoing.connection.send([b"\xff" * 64])
        with pytest.raises(WorkerLost):
            call.wait(10)
        assert c.rpc_sync("b", simulated.who) == "b"
        assert eventually(lambda: "expected a frame of kind" in caplog.text)
        assert a.rpc_sync("b", simulated.who) == "b"


def test_an_announced_size_beyond_the_limits_ends_the_connection():
    with neighbours("a", "b") as (a, b):
        a.rpc_sync("b", simulated.who)
        link = a.peers.get("b").outgoing
        prefix = bytearray(pack(CALL, 0, 9, 0, b"", [b"x"])[0])
        prefix[8:16] = (Limits().payload_bytes + 1).to_bytes(8, "little")
        link.connection.send([bytes(prefix)])
        assert eventually(lambda: not b.peers.get("a").incoming)


def test_strangers_at_the_port_disturb_nobody():
    with neighbours("a", "b", tcp=True) as (a, b):
        host, port = b.address.removeprefix("tcp://").rsplit(":", 1)
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert a.rpc_sync("b", simulated.who) == "b"
            stranger.settimeout(10)
            assert stranger.recv(100) == b""


def test_a_broken_connection_loses_the_peer_at_once_and_a_new_one_is_made():
    with neighbours("a", "b") as (a, b):
        call = a.rpc_async("b", simulated.never)
        assert eventually(lambda: bool(b.peers.get("a").incoming))
        b.peers.get("a").incoming.connection.shutdown()
        with pytest.raises(WorkerLost, match="worker 'b' was lost"):
            call.wait(10)
        assert a.rpc_sync("b", simulated.who) == "b"


def test_links_that_have_ended_keep_no_descriptors(pair):
    a, b = pair
    a.rpc_sync("b", simulated.who)
    ends = [a.peers.get("b").outgoing, b.peers.get("a").incoming]
    a.endpoint_lost(ends[0], ConnectionError("cut"))
    assert len(ends) == 2
    assert eventually(lambda: all(link.connection.fileno() == -1 for link in ends))


def test_wait_for_a_call_that_blocks_in_a_handler_does_not_stop_the_reader(pair):
    a, _ = pair
    # Each handler on b waits for a plain future that a later request settles.
    assert a.rpc_async("b", simulated.wait_for_gate) is not None
    waiting = [a.rpc_async("b", simulated.wait_for_gate) for _ in range(20)]
    a.rpc_sync("b", simulated.open_gate, timeout=20)
    assert wait_all(waiting, timeout=20) == ["open"] * 20


@pytest.mark.skipif(not SEGMENTS, reason="this system has no sealed memory files")
def test_a_peer_that_names_shared_memory_it_never_sent_is_cut_off_by_name(pair, caplog):
    a, b = pair
    a.rpc_sync("b", simulated.who)
    link = a.peers.get("b").outgoing
    link.connection.send(pack(CALL, PLACED, 9, 0, b"", [Placement(5, 0, 100)]))
    assert eventually(lambda: not b.peers.get("a").incoming)
    assert "worker 'a' names the segment 5, which it never sent" in caplog.text
