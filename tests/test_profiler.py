"""What a profile records on every worker, and the trace and table made of it."""

import json
import math
import os
import threading
import time
import weakref
from collections import Counter, defaultdict

import numpy as np
import pytest
from tests.distributed import handlers, training
from tests.rpc.neighbours import eventually, neighbours

import telegrad as tg
from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.distributed.tools.chrome_trace import chrome_trace
from telegrad.distributed.tools.event_log import Event, EventLog
from telegrad.distributed.tools.remote_profile import RemoteProfile
from telegrad.errors import CallTimeout, UsageError, WorkerLost
from telegrad.profiler import profile

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(["b", "c"]) as cluster:
        yield cluster


def through(names, x, folder):
    """What `handlers.through` does, once both who ask for it wait for the answer."""
    y = handlers.scale(x)
    if names:
        return rpc.rpc_sync(names[0], through, (names[1:], y, folder))
    while len(os.listdir(folder)) < 2:
        time.sleep(0.01)
    return y


def tell_of_waits(folder, set_attribute=setattr):
    """Leave a file when a thread of this worker is about to wait for `through`."""
    begin = EventLog.waiting

    def waiting(log, call):
        if getattr(call.what, "__name__", "") == "through":
            open(f"{folder}/{log._worker.name}", "x").close()
        return begin(log, call)

    set_attribute(EventLog, "waiting", waiting)


def work(function, *args):
    """A call that goes on to another worker, and the pass back; the id of its context."""
    x = tg.tensor(np.array([5.0, 7.0]), requires_grad=True)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", function, (["c"], x, *args))
        autograd.backward(context_id, [y.sum()])
    return context_id


@pytest.fixture(scope="module")
def recorded(cluster, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("waits"))
    work(handlers.through)
    with pytest.MonkeyPatch.context() as patch:
        rpc.rpc_sync("b", tell_of_waits, (folder,))
        tell_of_waits(folder, patch.setattr)
        with profile() as p:
            context_id = work(through, folder)
    return p, context_id


def of_kind(p, worker, kind):
    return [event for event in p.events[worker] if event.kind == kind]


def test_calls_and_handlers_are_recorded_on_every_worker(recorded):
    p, _ = recorded
    assert [event.name for event in of_kind(p, "main", "call")] == ["through → b"]
    assert [event.name for event in of_kind(p, "b", "call")] == ["through → c"]
    for worker in ("b", "c"):
        assert "through" in [event.name for event in of_kind(p, worker, "handler")]
    assert all(event.size for event in of_kind(p, "main", "call"))
    assert all(event.received for event in of_kind(p, "main", "call"))


def test_gradient_messages_are_recorded_where_they_leave_and_where_they_arrive(recorded):
    p, _ = recorded
    left = [e.name for e in of_kind(p, "main", "message")]
    arrived = [e.name for e in of_kind(p, "b", "handler")]
    assert [name for name in left if name.endswith("→ b") and "gradients" in name] != []
    assert [name for name in arrived if "gradients" in name] != []
    assert [e.name for e in of_kind(p, "b", "message") if "gradients" in e.name] != []


def test_node_runs_are_recorded_by_name(recorded):
    p, context_id = recorded
    for worker in ("b", "c"):
        assert any("Multiply" in event.name for event in of_kind(p, worker, "run"))
    (whole,) = [event for event in of_kind(p, "main", "run") if event.detail]
    assert whole.detail == context_id
    assert whole.name == "telegrad::distributed::autograd::backward"


def test_waits_are_recorded_where_somebody_waits(recorded):
    p, _ = recorded
    assert "wait for through" in [event.name for event in of_kind(p, "main", "wait")]
    assert "wait for through" in [event.name for event in of_kind(p, "b", "wait")]


def doubt(p, worker):
    """By how much times of a worker may be wrong."""
    return 0.0 if worker == "main" else p._watch.ahead_of(worker)[1]


def test_the_clock_that_all_workers_share_is_ahead_by_nothing_give_or_take_what_is_said(recorded):
    p, _ = recorded
    for worker in ("b", "c"):
        ahead, most = p._watch.ahead_of(worker)
        assert abs(ahead) <= most < math.inf


def test_clocks_are_aligned_a_handler_lies_within_its_call(recorded):
    p, _ = recorded
    everything = [event for events in p.events.values() for event in events]
    calls = {e.arrow: e for e in everything if e.arrow and e.kind in ("call", "message")}
    handlers_ = {e.arrow: e for e in everything if e.arrow and e.kind == "handler"}
    both = set(calls) & set(handlers_)
    assert len(both) >= 4
    for arrow in both:
        call, handler = calls[arrow], handlers_[arrow]
        # And a little for what is lost where large numbers are subtracted.
        margin = 1e-6 + sum(doubt(p, name) for name in arrow.partition(":")[0].split(">"))
        assert handler.begin >= call.begin - margin
        if call.kind == "call":
            assert handler.begin + handler.duration <= call.begin + call.duration + margin


def test_what_the_profiler_asks_is_not_recorded(recorded):
    p, _ = recorded
    names = [event.name for events in p.events.values() for event in events]
    assert [name for name in names if "profiler" in name] == []


def test_the_trace_is_in_the_chrome_format_and_its_arrows_pair_up(recorded, tmp_path):
    p, context_id = recorded
    path = p.export(tmp_path / "trace.json")
    events = json.loads(path.read_text())["traceEvents"]
    labels = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert list(labels.values()) == ["worker main", "worker b", "worker c"]
    assert Counter(e["ph"] for e in events).keys() == {"M", "X", "s", "f"}
    starts = Counter(e["id"] for e in events if e["ph"] == "s")
    ends = Counter(e["id"] for e in events if e["ph"] == "f")
    assert starts == ends
    assert set(starts.values()) == {1}
    assert len(starts) >= 4
    spans = [e for e in events if e["ph"] == "X"]
    assert min(e["ts"] for e in spans) == 0
    assert all(e["dur"] >= 0 for e in spans)
    assert any(e["args"].get("bytes") for e in spans)
    assert [e["args"]["context_id"] for e in spans if "context_id" in e["args"]] == [
        str(context_id)
    ]


def test_every_arrow_begins_and_ends_in_a_span(recorded):
    p, _ = recorded
    trace = chrome_trace(p.events)
    rows = defaultdict(list)
    for event in trace:
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for event in trace:
        if event["ph"] in "sf":
            place = rows[event["pid"], event["tid"]]
            assert any(begin <= event["ts"] <= end for begin, end in place)


def test_spans_of_one_row_nest_though_many_calls_are_under_way(cluster):
    with profile() as p:
        rpc.wait_all([rpc.rpc_async("b", handlers.same, (i,)) for i in range(20)])
    rows = defaultdict(list)
    for event in chrome_trace(p.events):
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append((event["ts"], event["dur"]))
    for spans in rows.values():
        ends = []
        for begin, took in sorted(spans, key=lambda span: (span[0], -span[1])):
            while ends and ends[-1] <= begin:
                ends.pop()
            assert not ends or begin + took <= ends[-1] + 1e-6
            ends.append(begin + took)


def test_an_arrow_of_which_one_end_was_not_recorded_is_left_out():
    calls = [
        Event("f → b", "call", 1.0, 0.5, 7, "a>b:1"),
        Event("g → b", "call", 1.1, 0.1, 7, "a>b:2"),
    ]
    served = [
        Event("g", "handler", 1.12, 0.05, 9, "a>b:2"),
        Event("h", "handler", 1.2, 0.1, 9, "c>b:1"),
    ]
    trace = chrome_trace({"a": calls, "b": served})
    assert [(e["ph"], e["id"], e["pid"]) for e in trace if e["ph"] in "sf"] == [
        ("s", 2, 1),
        ("f", 2, 2),
    ]


def test_numbers_of_processes_rows_and_arrows_are_such_as_perfetto_takes():
    calls = [
        Event("f → b", "call", 1.0, 0.5, 7, "a>b:1"),
        Event("g → b", "call", 1.1, 0.1, 7, "a>b:2"),
    ]
    trace = chrome_trace({"a": calls, "b": [Event("g", "handler", 1.12, 0.05, 9, "a>b:2")]})
    rows = [(e["pid"], e["tid"]) for e in trace if e["ph"] == "X"]
    assert len({row for _, row in rows}) == 3
    assert all(process > 0 and row > process for process, row in rows)
    assert all(isinstance(e["id"], int) and e["id"] > 0 for e in trace if e["ph"] in "sf")
    names = [e["args"]["name"] for e in trace if e["name"] == "thread_name"]
    assert names == ["calls under way 1", "calls under way 2", "thread 1"]


def test_the_summary_is_a_table_by_worker(recorded):
    p, _ = recorded
    lines = p.summary().splitlines()
    assert lines[0].split()[:4] == ["worker", "calls", "messages", "KiB"]
    rows = {line.split()[0]: line.split()[1:] for line in lines[1:]}
    assert list(rows) == ["main", "b", "c"]
    assert [rows[name][0] for name in rows] == ["1", "1", "0"]
    assert all(float(rows[name][3]) > 0 for name in rows)
    assert float(rows["main"][-1]) > 0
    assert len({len(line) for line in lines}) == 1


def test_off_no_worker_is_observed(cluster):
    with profile():
        assert all(rpc.rpc_sync(name, training.has_observer) for name in cluster.names)
    assert not any(rpc.rpc_sync(name, training.has_observer) for name in cluster.names)
    assert cluster.worker.observer is None


def test_an_error_inside_ends_the_profile_everywhere(cluster):
    with pytest.raises(handlers.Unlucky), profile() as p:
        rpc.rpc_sync("b", handlers.fail)
    assert not any(rpc.rpc_sync(name, training.has_observer) for name in cluster.names)
    assert [e.name for e in of_kind(p, "b", "handler")] == ["fail"]


def test_a_second_profile_is_refused_and_the_first_goes_on(cluster):
    with profile() as p:
        with pytest.raises(UsageError, match="one that is on at 'main'; leave it"):
            profile().__enter__()
        with pytest.raises(UsageError, match="one that is on at 'b'"):
            rpc.rpc_sync("b", training.profile_nothing)
        # Not even by one that nobody watches: it finds out at the first that somebody does.
        cluster.worker.observer, first = None, cluster.worker.observer
        with pytest.raises(UsageError, match="one that is on at 'b'"):
            profile().__enter__()
        cluster.worker.observer = first
        rpc.rpc_sync("c", handlers.same, (1,))
    assert "same" in [event.name for event in of_kind(p, "c", "handler")]
    with pytest.raises(UsageError, match="a fresh profile"):
        p.__enter__()


def test_a_profile_that_has_not_ended_has_nothing_to_show(cluster, tmp_path):
    with profile() as p:
        for show in (p.summary, lambda: p.export(tmp_path / "trace.json")):
            with pytest.raises(UsageError, match="leave its `with` block first"):
                show()


def test_a_worker_lost_meanwhile_and_one_lost_before_are_left_out():
    with LocalCluster(["b", "c"]) as cluster:
        with profile() as p:
            rpc.rpc_sync("c", handlers.same, (1,))
            cluster.process("b").kill()
            assert eventually(lambda: cluster.process("b").poll() is not None)
        assert p.events["b"] == []
        assert of_kind(p, "c", "handler") != []
        with profile() as p:
            rpc.rpc_sync("c", handlers.same, (1,))
        assert set(p.events) == {"main", "c"}


def test_a_profile_whose_caller_is_lost_ends():
    with LocalCluster(["b", "c"]) as cluster:
        rpc.rpc_sync("b", training.profile_and_hold)
        assert rpc.rpc_sync("c", training.has_observer)
        cluster.process("b").kill()
        assert eventually(lambda: not rpc.rpc_sync("c", training.has_observer))


def test_a_call_that_was_not_answered_goes_when_the_profile_has_ended(cluster):
    with profile():
        call = rpc.rpc_async("b", time.sleep, (1.0,), timeout=0.01)
        kept = weakref.ref(call)
        assert eventually(call.done)
        assert isinstance(call.exception(), CallTimeout)
    del call
    assert eventually(lambda: kept() is None)


def test_calls_that_timed_out_or_lost_their_worker_are_recorded_up_to_then():
    gate = threading.Event()
    with neighbours("a", "b") as (a, b):
        recording = EventLog(a)
        b.register_service("hold", lambda request: gate.wait(20))
        # Connected before: what was not sent in time is no message.
        assert a.rpc_sync("b", abs, (-1,)) == 1
        recording.start()
        with pytest.raises(CallTimeout):
            a.ask_service("b", "hold", timeout=0.2)
        lost = a.outgoing.service("b", "hold", None, (), math.inf, waits=False)
        a.endpoint_lost(lost.endpoint, ConnectionError("cut"))
        with pytest.raises(WorkerLost):
            lost.wait()
        gate.set()
        spans = [event for event in recording.stop() if event.kind == "message"]
        assert [(event.name, event.received) for event in spans] == [("hold → b", 0)] * 2
        assert all(event.duration > 0 for event in spans)


def test_a_handler_that_still_runs_when_the_profile_ends_is_recorded_up_to_then():
    gate = threading.Event()

    def answer_first(request):
        request.reply()
        assert gate.wait(20)

    with neighbours("a", "b") as (a, b):
        there, watch = EventLog(b), RemoteProfile(a)
        b.register_service("answers first", answer_first)
        watch.start(["b"])
        a.ask_service("b", "answers first")
        (span,) = watch.collect()["b"]
        assert (span.name, span.kind) == ("answers first", "handler")
        assert span.duration > 0
        # Nor does it turn up in the next one.
        watch.start(["b"])
        gate.set()
        a.rpc_sync("b", abs, (-1,))
        assert eventually(lambda: not there._serving)
        assert [each.name for each in watch.collect()["b"]] == ["abs"]
