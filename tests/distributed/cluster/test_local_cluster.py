"""LocalCluster with real processes: how it starts, what it runs, how each end of it ends."""

import gc
import glob
import os
import signal
import subprocess
import sys
import textwrap
import threading
import weakref

import numpy as np
import psutil
import pytest
from tests.distributed import functions
from tests.rpc.neighbours import directory_of, eventually, stop

from telegrad.distributed import LocalCluster, rpc
from telegrad.errors import CallTimeout, NotInitialized, UnknownWorker, UsageError, WorkerLost
from telegrad.rpc.membership.environment import THREADS, threads_each
from telegrad.rpc.options import Options
from telegrad.rpc.transport import PrivateDirectory
from telegrad.rpc.wire import functions as wire_functions

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(["ps", "trainer"]) as cluster:
        yield cluster


def test_everyone_has_a_process_of_its_own_and_a_rank(cluster):
    assert cluster.names == ["main", "ps", "trainer"]
    pids = {name: rpc.rpc_sync(name, functions.pid) for name in cluster.names}
    assert pids["main"] == os.getpid()
    assert len(set(pids.values())) == 3
    assert [rpc.get_worker_info(name).id for name in cluster.names] == [0, 1, 2]
    assert rpc.rpc_sync("ps", rpc.rpc_sync, ("trainer", functions.who)) == "trainer"


def test_functions_of_any_kind_run_there(cluster):
    offset = 3

    class Model:
        def __init__(self, k):
            self.k = k

        def forward(self, x):
            return self.k * x

    assert rpc.rpc_sync("ps", lambda x: x + offset, (1,)) == 4
    model = rpc.remote("ps", Model, (2,))
    assert model.rpc_sync().forward(np.ones(2)).tolist() == [2.0, 2.0]
    assert rpc.rpc_sync("ps", np.add, (np.ones(2), 1)).tolist() == [2.0, 2.0]
    own = rpc.RRef([1, 2])
    assert rpc.rpc_sync("ps", lambda r: r.to_here(), (own,)) == [1, 2]
    del model, own
    empty = {"owned": 0, "held": 0, "given": 0}
    assert eventually(lambda: rpc.rpc_sync("ps", functions.counts) == empty)


def test_whatever_is_on_the_path_or_in_the_working_directory_the_processes_start(
    tmp_path, monkeypatch
):
    (tmp_path / "json.py").write_text("raise ImportError('a module of the user')")
    monkeypatch.chdir(tmp_path)
    # Python passes over a Path; what no encoding explains is a name like any other.
    text = [*filter(None, sys.path), "/no/\udce4"]
    monkeypatch.setattr(sys, "path", [tmp_path, *text])
    with LocalCluster(["one"]):
        assert rpc.rpc_sync("one", lambda: list(map(ascii, sys.path))) == list(map(ascii, text))


def test_the_module_level_functions_work_from_any_thread(cluster):
    seen = []
    thread = threading.Thread(target=lambda: seen.append(rpc.rpc_sync("ps", functions.who)))
    thread.start()
    thread.join(30)
    assert seen == ["ps"]


def test_a_thousand_nested_calls_come_back(cluster):
    assert rpc.rpc_sync("ps", functions.bounce, ("main", 1000), timeout=60) == 1000


def test_a_chain_over_three_workers_comes_back(cluster):
    assert rpc.rpc_sync("ps", functions.bounce, ("trainer", 50)) == 50


def test_a_deadline_fires_while_every_thread_of_the_callee_is_busy(cluster):
    calls = [rpc.rpc_async("trainer", functions.busy, (1.0,)) for _ in range(2)]
    with pytest.raises(CallTimeout):
        rpc.rpc_sync("trainer", functions.hold, timeout=0.3)
    rpc.wait_all(calls)


def test_ten_thousand_calls_leave_no_descriptor_or_thread_behind(cluster):
    array = np.ones(40_000)
    for _ in range(50):
        rpc.rpc_sync("ps", np.negative, (array,))
    before = functions.resources(), rpc.rpc_sync("ps", functions.resources)
    for _ in range(98):
        rpc.wait_all([rpc.rpc_async("ps", abs, (-1,)) for _ in range(100)])
    for _ in range(200):
        rpc.rpc_sync("ps", np.negative, (array,))

    def is_back():
        after = functions.resources(), rpc.rpc_sync("ps", functions.resources)
        return all(
            threads_now <= threads and fds_now <= fds and not in_use
            for (threads, fds, _), (threads_now, fds_now, in_use) in zip(before, after)
        )

    assert eventually(is_back, 20), (before, functions.resources())


def test_nothing_is_left_after_the_cluster():
    process = psutil.Process()
    before = process.num_fds()
    with LocalCluster(["one"], me="alone") as small:
        rpc.rpc_sync("one", np.negative, (np.ones(200_000),))
        child = small.process("one")
        directory = directory_of(small.worker)
        assert process.num_fds() > before
    assert child.returncode == 0
    assert not os.path.exists(directory)
    assert process.num_fds() <= before
    assert [thread for thread in threading.enumerate() if "alone" in thread.name] == []


def test_a_killed_worker_is_lost_at_once_with_its_name():
    with LocalCluster(["victim", "other"]) as small:
        rpc.rpc_sync("other", rpc.rpc_sync, ("victim", functions.who))
        held = rpc.rpc_async("victim", functions.hold)
        with pytest.raises(WorkerLost, match="worker 'victim' was lost") as caught:
            rpc.rpc_sync("victim", functions.kill_yourself)
        assert "nothing was heard" not in str(caught.value), "it should not take a heartbeat"
        with pytest.raises(WorkerLost):
            held.wait(10)
        with pytest.raises(WorkerLost, match="victim"):
            rpc.rpc_sync("victim", functions.who, timeout=5)
        with pytest.raises(WorkerLost):
            rpc.rpc_sync("other", rpc.rpc_sync, ("victim", functions.who))
        assert rpc.rpc_sync("other", functions.who) == "other"
        assert small.process("victim").wait(10) == -signal.SIGKILL


def test_a_dead_worker_is_lost_although_a_fork_keeps_its_sockets():
    with LocalCluster(["victim"], options=Options(lost_after=10.0)):
        rpc.rpc_sync("victim", functions.who)
        with pytest.raises(WorkerLost, match="'victim' was lost: its process was killed by"):
            rpc.rpc_sync("victim", functions.leave_a_fork_and_die)


def test_a_stopped_worker_is_lost_by_heartbeat_and_does_not_hinder_the_end():
    with LocalCluster(["sleeper"], options=Options(lost_after=4.0)) as small:
        process = small.process("sleeper")
        with pytest.raises(WorkerLost, match=r"'sleeper' was lost: nothing was heard"):
            rpc.rpc_sync("sleeper", functions.stop_yourself)
    assert process.returncode == -signal.SIGKILL


def test_large_sends_to_a_stopped_worker_end_too():
    options = Options(lost_after=4.0, segments=False)
    with LocalCluster(["sleeper"], options=options) as small:
        rpc.rpc_sync("sleeper", functions.who)
        stop(small.process("sleeper").pid)
        with pytest.raises(WorkerLost, match="'sleeper'"):
            rpc.rpc_sync("sleeper", np.negative, (np.ones(5_000_000),))
        with pytest.raises(WorkerLost, match="'sleeper' was lost: it did not answer"):
            rpc.rpc_sync("sleeper", functions.who)
        small.process("sleeper").kill()


def test_without_unix_sockets_and_shared_memory_it_works_over_tcp():
    options = Options(unix_sockets=False, segments=False)
    with LocalCluster(["remote"], options=options) as small:
        assert small.worker.address.startswith("tcp://127.0.0.1:")
        array = np.arange(300_000.0)
        assert np.array_equal(rpc.rpc_sync("remote", np.negative, (array,)), -array)
        assert rpc.rpc_sync("remote", functions.bounce, ("main", 20)) == 20


def test_a_cluster_entered_by_hand_lives_until_it_is_left():
    entered = weakref.ref(LocalCluster(["held"]).__enter__())
    gc.collect()
    cluster = entered()
    assert cluster is not None
    process = cluster.process("held")
    assert rpc.rpc_sync("held", os.getpid) == process.pid
    cluster.close()
    assert process.poll() is not None
    del cluster
    gc.collect()
    assert entered() is None


def test_an_exception_in_the_block_ends_the_cluster():
    with pytest.raises(ZeroDivisionError), LocalCluster(["one"]) as small:
        process = small.process("one")
        raise ZeroDivisionError
    assert process.returncode == 0
    with pytest.raises(UsageError, match="not running"):
        _ = small.worker


def test_outside_any_cluster_calls_say_what_to_do():
    script = "from telegrad.distributed import rpc; rpc.rpc_sync('a', abs, (1,))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert NotInitialized.__name__ in done.stderr
    assert "call init_rpc first" in done.stderr


def test_children_have_the_options_of_the_interpreter_and_need_no_output():
    script = """
        import sys
        from telegrad.distributed import LocalCluster, rpc
        with LocalCluster(["a"]):
            there = rpc.rpc_sync("a", lambda: (sys.flags.optimize, sys.warnoptions, sys.stdout))
        if there != (2, ["error"], None):
            raise SystemExit(f"got {there}")
    """
    options = ["-OO", "-W", "error", "-c", textwrap.dedent(script)]
    quiet = 'exec "$0" "$@" >&-'
    done = subprocess.run(["sh", "-c", quiet, sys.executable, *options], stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


def test_children_and_sockets_go_when_their_parent_is_killed(tmp_path, monkeypatch):
    with PrivateDirectory.make() as directory:
        # Short, as the paths of sockets must be.
        monkeypatch.setenv("XDG_RUNTIME_DIR", directory.path)
        check_that_nothing_is_left(tmp_path, directory.path)


def check_that_nothing_is_left(tmp_path, runtime):
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, sys, time
            print("started", flush=True)
            from telegrad.distributed import LocalCluster, rpc
            cluster = LocalCluster(["a", "b"])
            cluster.__enter__()
            rpc.rpc_async("a", time.sleep, (600,))
            print(*[cluster.process(name).pid for name in "ab"], flush=True)
            time.sleep(600)
            """
        )
    )
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout.readline() == "started\n"
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2, "the script ran once, without a __main__ guard"
        (sockets,) = glob.glob(f"{runtime}/telegrad-*/")
        parent.send_signal(signal.SIGKILL)
        parent.wait(10)
        assert eventually(lambda: not any(_runs(pid) for pid in pids))
        assert eventually(lambda: not os.path.exists(sockets))
    finally:
        parent.kill()
        parent.stdout.close()
        parent.wait(10)


def _runs(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_several_clusters_may_follow_each_other_and_nest():
    for _ in range(2):
        with LocalCluster(["x"], me="outer") as outer:
            with LocalCluster(["y"], me="inner"):
                assert rpc.get_worker_info().name == "inner"
                assert rpc.rpc_sync("y", functions.who) == "y"
            assert rpc.get_worker_info().name == "outer"
            assert outer.worker.rpc_sync("x", functions.who) == "x"


def test_a_cluster_that_does_not_start_leaves_the_one_around_it_as_it_was():
    with LocalCluster([], me="outer"):
        with pytest.raises(WorkerLost, match="not up in time"):
            LocalCluster(["late"], me="inner", start_timeout=0.0).__enter__()
        assert rpc.get_worker_info().name == "outer"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("ps", "expected a list of names"),
        (-2, "expected a list of names .* or a number of workers, got -2"),
        (True, "expected a list of names"),
        (["a", "a"], "a came twice"),
        (["main"], "main came twice; this process is 'main' itself, me="),
    ],
)
def test_names_that_make_no_sense_are_refused(names, message):
    with pytest.raises(UsageError, match=message):
        LocalCluster(names)


def test_a_process_that_is_not_there_is_named(cluster):
    with pytest.raises(UnknownWorker, match="no process of worker 'nobody'"):
        cluster.process("nobody")


def test_a_worker_that_is_not_up_in_time_is_said_to_be_late_and_goes_quietly(capfd):
    with (
        pytest.raises(WorkerLost, match=r"'late' was not up in time: .*longer start_timeout"),
        LocalCluster(["late"], start_timeout=0.0),
    ):
        pass
    assert "Traceback" not in capfd.readouterr().err


class OfTheDead(LocalCluster):
    def _spawn(self, name):
        super()._spawn(name)
        self.process(name).kill()
        self.process(name).wait()


def test_a_process_that_ends_before_it_has_its_spec_is_named():
    message = r"the process of worker 'gone' ended before it was up \(exit status -9\)"
    with pytest.raises(WorkerLost, match=message), OfTheDead(["gone"]):
        pass


def test_a_cluster_that_is_running_is_not_entered_again():
    with LocalCluster([], me="alone") as cluster:
        with pytest.raises(UsageError, match="the cluster is running already"):
            cluster.__enter__()
        assert rpc.get_worker_info().name == "alone"


def start_another():
    LocalCluster([], me="inner").start().stop()


def test_a_cluster_is_not_started_by_a_handler_whose_calls_would_not_be_its_own():
    with LocalCluster([], me="alone"):
        message = r"a function that another worker calls.* those of 'alone'.*__main__"
        with pytest.raises(UsageError, match=message):
            rpc.rpc_sync("alone", start_another)


def test_an_interpreter_that_is_not_there_leaves_nothing_open(monkeypatch):
    gc.collect()
    before = psutil.Process().num_fds()
    monkeypatch.setattr(sys, "executable", "/no/python")
    with pytest.raises(FileNotFoundError, match="/no/python"):
        LocalCluster(["b"]).__enter__()
    assert psutil.Process().num_fds() == before


def test_a_strict_worker_that_cannot_import_what_is_exposed_here_says_so(monkeypatch, capfd):
    def exposed():
        pass

    exposed.__module__, exposed.__qualname__ = "only_here", "exposed"
    monkeypatch.setattr(wire_functions, "_exposed", {"only_here:exposed": exposed})
    with pytest.raises(WorkerLost, match=r"'b' could not start: .*No module named 'only_here'"):
        LocalCluster(["b"], options=Options(strict=True)).__enter__()
    assert "ModuleNotFoundError" in capfd.readouterr().err


def test_strict_workers_serve_what_was_exposed_by_modules_imported_before_them(tmp_path):
    (tmp_path / "served.py").write_text(
        textwrap.dedent("""
            from telegrad.distributed import rpc

            @rpc.expose
            def double(x):
                return 2 * x

            def hidden(x):
                return x
        """)
    )
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
            import served
            from telegrad.distributed import LocalCluster, rpc
            from telegrad.errors import Refused

            @rpc.expose
            def of_the_script(x):
                return x

            with LocalCluster(["ps"], options=rpc.Options(strict=True)):
                print(rpc.rpc_sync("ps", served.double, (21,)))
                for function in (served.hidden, of_the_script):
                    try:
                        rpc.rpc_sync("ps", function, (21,))
                    except Refused as error:
                        print(error)
        """)
    )
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    double, hidden, of_the_script = result.stdout.splitlines()
    assert double == "42"
    assert "'served:hidden' is not served in strict mode" in hidden
    assert "or before the LocalCluster starts" in hidden
    assert "a module that every worker imports, not of the script itself" in of_the_script


@pytest.mark.parametrize("chosen", [None, "7"])
def test_workers_share_the_cores_unless_a_number_of_threads_was_chosen(chosen, monkeypatch):
    if chosen is None:
        monkeypatch.delenv(THREADS, raising=False)
    else:
        monkeypatch.setenv(THREADS, chosen)
    with LocalCluster(["ps"]):
        assert rpc.rpc_sync("ps", os.getenv, (THREADS,)) == (chosen or threads_each(2))


def test_many_workers_have_longer_to_come_up_unless_it_is_said():
    assert LocalCluster(2).start_timeout == 62
    assert LocalCluster(200).start_timeout == 260
    assert LocalCluster(200, start_timeout=5).start_timeout == 5
