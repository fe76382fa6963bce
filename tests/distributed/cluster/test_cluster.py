"""What every cluster does: who comes, leaves and is lost; here with a LocalCluster."""

import os
import signal
import threading

import pytest
from tests.distributed import functions
from tests.rpc.neighbours import eventually

from telegrad.distributed import ClusterChange, LocalCluster, rpc
from telegrad.distributed.cluster.child import Child
from telegrad.distributed.cluster.worker_process import WorkerSpec
from telegrad.errors import CallTimeout, ProtocolViolation, UnknownWorker, UsageError, WorkerLost
from telegrad.rpc.options import Options

pytestmark = pytest.mark.processes

_initialized = []


def initialize():
    _initialized.append(os.getpid())


def initialized():
    return len(_initialized)


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(2, restart=True, initializer=initialize) as cluster:
        yield cluster


def changes_of(cluster):
    seen = []
    cluster.on_change(lambda change: seen.append((change.kind, change.worker.name)))
    return seen


def test_a_number_of_workers_is_enough(cluster):
    assert cluster.names == ["main", "worker0", "worker1"]
    assert repr(cluster) == "<LocalCluster of main, worker0, worker1: running>"
    assert [info.id for info in cluster.wait_for()] == [0, 1, 2]


def test_every_worker_has_run_the_initializer_once(cluster):
    assert [rpc.rpc_sync(name, initialized) for name in ("worker0", "worker1")] == [1, 1]


def test_a_killed_worker_is_started_again_and_all_know_it(cluster):
    seen = changes_of(cluster)
    held = rpc.remote("worker0", dict)
    held.to_here()
    before = rpc.get_worker_info("worker0")
    os.kill(cluster.process("worker0").pid, signal.SIGKILL)
    (after,) = cluster.wait_for("worker0", after=before.incarnation)
    assert (after.name, after.id) == (before.name, before.id)
    assert after.incarnation != before.incarnation
    # Whoever waits goes on before the callbacks are called.
    assert eventually(lambda: len(seen) == 2)
    assert seen == [("lost", "worker0"), ("came", "worker0")]
    pid = cluster.process("worker0").pid
    assert rpc.rpc_sync("worker0", functions.pid) == pid
    assert rpc.rpc_sync("worker1", rpc.rpc_sync, ("worker0", functions.pid)) == pid
    assert rpc.rpc_sync("worker0", rpc.rpc_sync, ("worker1", functions.who)) == "worker1"
    assert rpc.rpc_sync("worker0", initialized) == 1
    with pytest.raises(WorkerLost):
        held.to_here()


def test_a_worker_comes_late_and_is_removed(cluster):
    seen = changes_of(cluster)
    added = cluster.add("late")
    assert added.id == 3
    assert rpc.rpc_sync("worker1", rpc.rpc_sync, ("late", functions.who)) == "late"
    assert rpc.rpc_sync("late", initialized) == 1
    with pytest.raises(UsageError, match=r"a worker named 'late' already, at unix:.*remove it"):
        cluster.add("late")
    process = cluster.process("late")
    cluster.remove("late")
    assert process.returncode == 0
    assert cluster.names == ["main", "worker0", "worker1"]
    for where in ("main", "worker1"):
        with pytest.raises(UnknownWorker, match="no worker 'late'; the workers are"):
            rpc.rpc_sync(where, rpc.rpc_sync, ("late", functions.who))
    assert seen == [("came", "late"), ("left", "late")]
    assert cluster.add("later").id == 4, "ids are not used twice"
    cluster.remove("later")


def test_what_cant_be_added_waited_for_or_removed_is_refused(cluster):
    with pytest.raises(UsageError, match=r"expected no resources.*got num_gpus"):
        cluster.add("x", num_gpus=1)
    with pytest.raises(UsageError, match="expected a worker's name"):
        cluster.add("no name")
    with pytest.raises(UnknownWorker, match=r"no worker 'x' to remove; there are worker0, worker1"):
        cluster.remove("x")
    with pytest.raises(UnknownWorker, match="no worker 'x'; the workers are 'main', "):
        cluster.wait_for("x")
    alive = rpc.get_worker_info("worker1").incarnation
    with pytest.raises(CallTimeout, match=r"'worker1' did not come up within 0.01 s"):
        cluster.wait_for("worker1", after=alive, timeout=0.01)


def test_nobody_but_the_parent_introduces_others(cluster):
    def forge():
        news = {"came": [["x", 9, 0, "unix:///elsewhere", 5]], "left": []}
        rpc.current_worker().ask_service("worker1", "telegrad.introduce", news)

    with pytest.raises(ProtocolViolation, match="'worker0' introduces others; only the parent"):
        rpc.rpc_sync("worker0", forge)


def test_a_callback_that_fails_hinders_nobody(cluster, caplog):
    def fail(change):
        if change.worker.name == "unlucky":
            raise ValueError(change.kind)

    cluster.on_change(fail)
    cluster.add("unlucky")
    cluster.remove("unlucky")
    assert "a callback of on_change failed" in caplog.text


def test_a_stopped_worker_is_condemned_and_replaced():
    with LocalCluster(["a"], restart=True, options=Options(lost_after=4.0)) as small:
        before = rpc.get_worker_info("a").incarnation
        process = small.process("a")
        with pytest.raises(WorkerLost):
            rpc.rpc_sync("a", functions.stop_yourself)
        small.wait_for("a", after=before)
        assert process.wait(30) == -signal.SIGKILL
        assert rpc.rpc_sync("a", functions.who) == "a"


def test_without_restart_waiting_for_a_worker_that_ended_is_an_error_at_once():
    with LocalCluster(["a"]) as small:
        seen = changes_of(small)
        before = rpc.get_worker_info("a").incarnation
        os.kill(small.process("a").pid, signal.SIGKILL)
        with pytest.raises(UsageError, match=r"'a' won't come back: .*and restart=False"):
            small.wait_for("a", after=before)
        assert seen == [("lost", "a")]


def test_a_worker_that_cant_be_started_again_is_given_up(monkeypatch, caplog):
    with LocalCluster(["a"], restart=True, initializer=_fail_the_second_time) as small:
        before = rpc.get_worker_info("a").incarnation
        monkeypatch.setenv("TELEGRAD_TEST_FAILS", "1")
        os.kill(small.process("a").pid, signal.SIGKILL)
        with pytest.raises(UsageError, match="'a' won't come back: no second time"):
            small.wait_for("a", after=before)
        assert "could not be started again" in caplog.text


def _fail_the_second_time():
    if os.environ.get("TELEGRAD_TEST_FAILS"):
        raise ValueError("no second time")


def test_asking_how_a_worker_ended_takes_nothing_from_the_one_that_comes_next(monkeypatch):
    with LocalCluster(["a"], restart=True, start_timeout=20.0) as small:
        before = rpc.get_worker_info("a")
        said, threads = [], []

        def ask():
            said.append(small.worker.losses.explain(before))

        def send(child, content, send=Child.send):
            if isinstance(content, WorkerSpec):
                # The next one is being started: what it says first is not for this thread.
                threads.append(threading.Thread(target=ask))
                threads[-1].start()
            send(child, content)

        monkeypatch.setattr(Child, "send", send)
        os.kill(small.process("a").pid, signal.SIGKILL)
        small.wait_for("a", after=before.incarnation)
        threads[0].join()
        assert ["SIGKILL" in each for each in said] == [True]


def test_start_and_stop_do_what_the_with_statement_does():
    before = set(threading.enumerate())
    small = LocalCluster(["a"])
    assert repr(small) == "<LocalCluster of main, a: not running>"
    with pytest.raises(UsageError, match="not running"):
        small.add("b")
    for _ in range(2):
        assert small.start() is small
        assert small.add("b").id == 2
        small.remove("b")
        assert rpc.rpc_sync("a", functions.who) == "a"
        small.stop()
        small.stop()
    assert not small.is_running
    assert eventually(lambda: set(threading.enumerate()) <= before)


def test_an_initializer_that_is_none_or_fails_is_an_error():
    with pytest.raises(UsageError, match="a function as initializer, got a int"):
        LocalCluster(1, initializer=3)
    small = LocalCluster(1, initializer=_fail)
    with pytest.raises(ZeroDivisionError):
        small.start()
    assert not small.is_running


def _fail():
    raise ZeroDivisionError


def test_a_change_says_what_who_and_why():
    change = ClusterChange("lost", rpc.WorkerInfo("a", 1, 7), "its process ended")
    assert (change.kind, change.worker.name, change.reason) == ("lost", "a", "its process ended")
