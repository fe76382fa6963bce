"""`telegrad run`: what scripts see, whose line it is, and that nothing is left."""

import contextlib
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from telegrad.cli import main
from telegrad.cli.command import worker_names
from telegrad.rpc.membership.environment import THREADS, threads_each

pytestmark = pytest.mark.processes

PATIENCE = 30.0
Script = Callable[[str], str]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    def write(source: str) -> str:
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(source))
        return str(path)

    return write


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "telegrad", "run", *arguments]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=PATIENCE)


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    # Unbuffered, so that a line is either still in the pipe, where select sees it, or returned.
    process = subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def lines(process: subprocess.Popen[bytes], count: int) -> list[str]:
    """Wait for that many lines of output, in the order of their workers."""
    assert process.stdout is not None
    found = []
    for _ in range(count):
        assert select.select([process.stdout], [], [], PATIENCE)[0], f"only {found} came"
        found.append(process.stdout.readline().decode().strip())
    return sorted(found)


def pids(said: list[str]) -> list[int]:
    return [int(line.split()[-1]) for line in said]


def until_gone(numbers: list[int]) -> None:
    deadline = time.monotonic() + PATIENCE
    while alive := [pid for pid in numbers if is_alive(pid)]:
        assert time.monotonic() < deadline, f"processes {alive} are left"
        threading.Event().wait(0.01)


def until_stopped(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
        assert time.monotonic() < deadline, f"process {pid} goes on"
        threading.Event().wait(0.01)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_each_worker_runs_the_script_with_its_place_in_the_cluster(script: Script) -> None:
    path = script(
        """
        import json, os, sys
        names = ["MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "TELEGRAD_WORKER_NAME"]
        print(json.dumps([*(os.environ[name] for name in names), sys.argv[1:]]))
        """
    )
    done = run("--workers", "ps,trainer0", path, "--steps", "3", "-x")
    assert done.returncode == 0, done.stderr
    ps, trainer = sorted(done.stdout.splitlines())
    port = json.loads(ps.removeprefix("[ps]"))[1]
    rest = ["--steps", "3", "-x"]
    assert ps.startswith("[ps]       [")
    assert json.loads(ps.removeprefix("[ps]")) == ["127.0.0.1", port, "0", "2", "ps", rest]
    assert json.loads(trainer.removeprefix("[trainer0]")) == (
        ["127.0.0.1", port, "1", "2", "trainer0", rest]
    )
    assert done.stderr == ""


@pytest.mark.parametrize("chosen", [None, "7"])
def test_workers_share_the_cores_unless_a_number_of_threads_was_chosen(
    script: Script, chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if chosen is None:
        monkeypatch.delenv(THREADS, raising=False)
    else:
        monkeypatch.setenv(THREADS, chosen)
    done = run("--workers", "1", script(f"import os; print(os.environ[{THREADS!r}])"))
    assert done.stdout == f"[worker0] {chosen or threads_each(1)}\n", done.stderr


def test_all_workers_read_one_fresh_key_as_often_as_they_like(script: Script) -> None:
    path = script(
        """
        import os
        from telegrad.rpc.security.keys import ClusterKey
        first, second = (ClusterKey.load(os.environ["TELEGRAD_KEY_FILE"]) for _ in range(2))
        assert first == second
        print(first.derive("a test", b"x").hex())
        """
    )
    runs = [run("--workers", "a,b,c", path) for _ in range(2)]
    signs = [{line.split()[1] for line in done.stdout.splitlines()} for done in runs]
    assert [len(found) for found in signs] == [1, 1]
    assert signs[0] != signs[1]


def test_without_memory_files_the_key_is_in_a_private_file_that_goes(
    script: Script, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path = script(
        """
        import os
        key = os.environ["TELEGRAD_KEY_FILE"]
        modes = [oct(os.stat(path).st_mode & 0o777) for path in (key, os.path.dirname(key))]
        print(*modes, os.path.dirname(key))
        """
    )
    monkeypatch.delattr(os, "memfd_create", raising=False)
    assert main(["run", "--workers", "a", str(path)]) == 0
    *modes, directory = capfd.readouterr().out.split()[-3:]
    assert modes == ["0o600", "0o700"]
    assert not os.path.exists(directory)


def test_workers_meet_over_the_key_and_the_port_they_were_given(script: Script) -> None:
    path = script(
        """
        import os, queue
        from telegrad.rpc.security.keys import ClusterKey
        from telegrad.rpc.transport import Identity, connect, listen
        me = Identity(os.environ["TELEGRAD_WORKER_NAME"], 1,
                      ClusterKey.load(os.environ["TELEGRAD_KEY_FILE"]))
        address = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        if os.environ["RANK"] == "0":
            arrived = queue.Queue()
            with listen(address, identity=me, on_connection=arrived.put):
                print("met", arrived.get(timeout=20).peer_name)
        else:
            print("met", connect(address, identity=me, expect="ps", patience=20).peer_name)
        """
    )
    done = run("--workers", "ps,trainer", path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[ps]      met trainer", "[trainer] met ps"]


def test_a_script_needs_no_more_than_init_rpc(script: Script) -> None:
    path = script(
        """
        import operator
        from telegrad.distributed import rpc
        rpc.init_rpc()
        me = rpc.get_worker_info().name
        if me != "ps":
            print(rpc.rpc_sync("ps", operator.add, args=(40, 2)))
        rpc.shutdown()
        """
    )
    done = run("--workers", "ps,t0,t1", path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[t0] 42", "[t1] 42"]


def test_the_first_failure_ends_all_and_is_the_exit_code(script: Script) -> None:
    path = script(
        """
        import os, sys, time
        if os.environ["RANK"] == "1":
            print("about to fail", file=sys.stderr, end="")
            sys.exit(7)
        time.sleep(600)
        """
    )
    done = run("--workers", "ps,bad,other", path)
    assert done.returncode == 7
    assert "[bad]   about to fail\n" in done.stderr
    assert "bad ended with exit code 7: ending the others" in done.stderr


def test_a_worker_that_fails_is_named_and_not_those_that_lose_it(script: Script) -> None:
    path = script(
        """
        import os, sys, time
        from telegrad.distributed import rpc
        from telegrad.errors import WorkerLost

        def serve(seconds):
            open("begun", "x").close()
            time.sleep(seconds)

        os.chdir(sys.argv[1])

        rpc.init_rpc()
        if rpc.get_worker_info().name == "bad":
            while not os.path.exists("begun"):
                time.sleep(0.01)
            raise ValueError("the cause")
        try:
            rpc.rpc_sync("bad", serve, (0.5,))
            rpc.rpc_sync("bad", abs, (-1,))
        except WorkerLost:
            raise SystemExit(9)
        """
    )
    done = run("--workers", "bad,other", path, os.path.dirname(path))
    assert "ValueError: the cause" in done.stderr
    assert "bad ended with exit code 1: ending the others" in done.stderr
    assert done.returncode == 1


def test_a_worker_killed_by_a_signal_gives_the_shells_code(script: Script) -> None:
    path = script(
        """
        import os, signal, time
        if os.environ["RANK"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)
        """
    )
    assert run("--workers", "ps,other", path).returncode == 128 + signal.SIGKILL


def test_a_worker_that_fails_last_is_named_too(script: Script) -> None:
    done = run(
        "--workers", "only", script("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    )
    assert done.returncode == 128 + signal.SIGKILL
    assert done.stderr == "[telegrad] only ended with exit code 137\n"


def test_a_worker_that_ends_well_leaves_the_others_running(script: Script) -> None:
    path = script(
        """
        import os, time
        if os.environ["RANK"] == "0":
            raise SystemExit(0)
        time.sleep(0.2)
        print("still here")
        """
    )
    done = run("--workers", "ps,other", path)
    assert done.returncode == 0
    assert done.stdout == "[other] still here\n"


def test_output_of_the_last_moment_is_not_lost(script: Script) -> None:
    path = script(
        """
        import fcntl, os
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            # Room for all of it, so that the worker is gone before anybody reads.
            fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 20)
        data = b"x" * 500_000 + b"\\nend"
        while data:
            data = data[os.write(1, data):]
        """
    )
    done = run("--workers", "a,b", path)
    assert sorted(line[:7] for line in done.stdout.splitlines()) == (
        ["[a] end", "[a] xxx", "[b] end", "[b] xxx"]
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_reach_every_worker(script: Script, number: signal.Signals) -> None:
    path = script(
        f"""
        import signal, sys, time
        def leave(number, frame):
            print("told", number, flush=True)
            sys.exit(3)
        signal.signal({int(number)}, leave)
        print("ready", flush=True)
        while True:  # signal.pause() would sleep through one that came just before it.
            time.sleep(0.01)
        """
    )
    with running("--workers", "a,b", path) as process:
        assert lines(process, 2) == ["[a] ready", "[b] ready"]
        process.send_signal(number)
        assert lines(process, 2) == [f"[a] told {int(number)}", f"[b] told {int(number)}"]
        assert process.wait(PATIENCE) == 3


def test_a_signal_that_does_not_end_is_passed_on_and_all_go_on(script: Script) -> None:
    path = script(
        """
        import signal
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        print("ready", flush=True)
        signal.sigwait([signal.SIGUSR1])
        print("noted", flush=True)
        """
    )
    with running("--workers", "a,b", path) as process:
        lines(process, 2)
        process.send_signal(signal.SIGUSR1)
        assert lines(process, 2) == ["[a] noted", "[b] noted"]
        assert process.wait(PATIENCE) == 0


def test_workers_that_wont_end_or_are_stopped_are_killed_after_the_grace(script: Script) -> None:
    path = script(
        """
        import os, signal, sys, time
        is_bad = os.environ["RANK"] == "0"
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, (lambda *_: sys.exit(5)) if is_bad else signal.SIG_IGN)
        print(os.getpid(), flush=True)
        if os.environ["RANK"] == "2":
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(600)
        """
    )
    with running("--workers", "bad,deaf,stopped", "--grace", "0.3", path) as process:
        workers = pids(lines(process, 3))
        process.send_signal(signal.SIGUSR1)
        assert process.wait(PATIENCE) == 5
    until_gone(workers)


def test_a_stopped_worker_is_woken_to_take_its_leave(script: Script) -> None:
    path = script(
        """
        import os, signal, sys, time
        is_bad = os.environ["RANK"] == "0"
        def leave(number, frame):
            print("leaving", flush=True)
            sys.exit(0)
        signal.signal(signal.SIGTERM, leave)
        signal.signal(signal.SIGUSR1, (lambda *_: sys.exit(5)) if is_bad else signal.SIG_IGN)
        print(os.getpid(), flush=True)
        if not is_bad:
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(600)
        """
    )
    with running("--workers", "bad,stopped", "--grace", "inf", path) as process:
        _, stopped = pids(lines(process, 2))
        until_stopped(stopped)
        process.send_signal(signal.SIGUSR1)
        assert lines(process, 1) == ["[stopped] leaving"]
        assert process.wait(PATIENCE) == 5


def test_processes_that_workers_started_go_with_them(script: Script) -> None:
    path = script(
        """
        import subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print(child.pid, flush=True)
        """
    )
    with running("--workers", "a,b", path) as process:
        children = pids(lines(process, 2))
        assert process.wait(PATIENCE) == 0
    until_gone(children)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of the death")
def test_workers_die_with_a_launcher_that_is_killed(script: Script) -> None:
    path = script("import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    with running("--workers", "a,b", path) as process:
        workers = pids(lines(process, 2))
        process.kill()
        process.wait(PATIENCE)
    until_gone(workers)


READS_ITS_KEY = """
    import os, sys
    from telegrad.rpc.security.keys import ClusterKey
    ClusterKey.load(os.environ["TELEGRAD_KEY_FILE"])
    print("out")
    print("err", file=sys.stderr)
    open(sys.argv[1], "a").write("came to its end\\n")
"""


def buffered() -> dict[str, str]:
    """The environment of most users: what can't be written stays in a buffer."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def run_in_shell(redirections: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run with streams that only a shell can give."""
    return subprocess.run(
        f"{shlex.join(command(*arguments))} {redirections}",
        shell=True,
        env=buffered(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@pytest.mark.parametrize(
    ("closed", "out", "err"),
    [
        ("<&-", "[a] out\n", "[a] err\n"),
        (">&-", "", "[a] err\n"),
        ("2>&-", "[a] out\n", ""),
        ("<&- >&- 2>&-", "", ""),
    ],
)
def test_a_standard_stream_that_is_closed_costs_its_output_alone(
    script: Script, tmp_path: Path, closed: str, out: str, err: str
) -> None:
    path, ends = script(READS_ITS_KEY), tmp_path / "ends"
    done = run_in_shell(closed, "--workers", "a", path, str(ends))
    assert (done.stdout, done.stderr, done.returncode) == (out, err, 0)
    assert ends.read_text() == "came to its end\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no full device")
def test_workers_whose_output_finds_no_room_come_to_their_end_and_the_loss_is_told(
    script: Script, tmp_path: Path
) -> None:
    path, ends = script(READS_ITS_KEY), tmp_path / "ends"
    done = run_in_shell(">/dev/full", "--workers", "a", path, str(ends))
    assert done.returncode == 1
    told = "[telegrad] output of the workers is lost: No space left on device; they go on"
    assert sorted(done.stderr.splitlines()) == ["[a] err", told]
    assert ends.read_text() == "came to its end\n"


def test_a_reader_that_went_away_is_no_failure(script: Script, tmp_path: Path) -> None:
    path, ends = script(READS_ITS_KEY), tmp_path / "ends"
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(
        command("--workers", "a", path, str(ends)),
        env=buffered(),
        stdout=theirs,
        stderr=subprocess.PIPE,
        timeout=PATIENCE,
    )
    os.close(theirs)
    assert (done.stderr, done.returncode) == (b"[a] err\n", 0)


def test_a_number_of_workers_names_them_by_their_ranks(script: Script) -> None:
    path = script(
        """
        import operator, os
        from telegrad.distributed import rpc
        rpc.init_rpc()
        if os.environ["RANK"] == "1":
            print(rpc.rpc_sync("worker0", operator.add, args=(40, 2)))
        rpc.shutdown()
        """
    )
    done = run("--workers", "2", path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[worker1] 42\n"


def test_the_script_of_the_documents_runs_as_they_say(script: Script) -> None:
    page = (Path(__file__).parents[2] / "docs" / "calling-another-worker.md").read_text()
    source, shown = page.split("This is a whole `script.py`:\n\n```\n")[1].split("```")[0:3:2]
    asked, printed = shown.strip().split("\n", 1)
    assert asked == "$ telegrad run --workers 2 script.py"
    done = run("--workers", "2", script(source))
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed + "\n"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("1", ["worker0"]),
        (" 3 ", ["worker0", "worker1", "worker2"]),
        ("2,3", ["2", "3"]),
        ("2a", ["2a"]),
        ("ps, trainer", ["ps", "trainer"]),
    ],
)
def test_only_a_plain_number_counts_and_names_stay_names(text: str, names: list[str]) -> None:
    assert worker_names(text) == names


def test_help_says_what_a_number_means(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    assert "2 means worker0,worker1" in " ".join(capsys.readouterr().out.split())


def test_a_module_is_started_by_its_name_with_its_arguments(tmp_path, monkeypatch):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "program.py").write_text(
        textwrap.dedent(
            """
            import sys
            from telegrad.distributed import rpc

            def greet():
                return f"{rpc.get_worker_info().name} of {__package__}, {sys.argv[1:]}"

            rpc.init_rpc()
            other = 1 - rpc.get_worker_info().id
            print(rpc.rpc_sync(other, greet))
            rpc.shutdown()
            """
        )
    )
    monkeypatch.chdir(tmp_path)
    done = run("--workers", "2", "-m", "package.program", "-m", "x")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [
        "[worker0] worker1 of package, ['-m', 'x']",
        "[worker1] worker0 of package, ['-m', 'x']",
    ]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--workers", "0", "x.py"], "a number from 1 to 65535 (2 means worker0,worker1), got 0"),
        (["--workers", "-1", "x.py"], "expected --workers to be names like ps,trainer0 or"),
        (["--workers", "65536", "x.py"], "a number from 1 to 65535"),
        (["--workers", "", "x.py"], "or a number from 1 to 65535 (2 means worker0,worker1), got"),
        (["--workers", "a,,b", "x.py"], "expected a worker's name"),
        (["--workers", "a,a", "x.py"], "two workers are called 'a'"),
        (["--workers", "a b", "x.py"], "expected a worker's name"),
        (["--workers", "a", "none.py"], "no script at none.py"),
        (["--workers", "a", "--port", "99999", "x.py"], "expected --port from 1 to 65535"),
        (["--workers", "a", "--grace", "-1", "x.py"], "expected --grace of 0 or more seconds"),
        (["--workers", "a", "--grace", "nan", "x.py"], "expected --grace of 0 or more seconds"),
    ],
)
def test_misuse_is_explained(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *arguments]) == 2
    assert complaint in capsys.readouterr().err


def test_without_a_script_that_alone_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--workers", "2"])
    assert capsys.readouterr().err.endswith("the following arguments are required: script\n")


def test_without_a_command_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert "run" in shown
    assert "keygen" in shown
