"""``breakpoint()`` in a handler, in front of a real terminal and without one."""

import contextlib
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.test_docs import ROOT, blocks

pytestmark = pytest.mark.processes

PATIENCE = 60.0
SHORT = 5.0
"""Seconds of a timeout that a handler at the prompt outlasts, and a busy machine does not."""
OUTLAST = f"import time; time.sleep({SHORT + 1})"
PROGRAM = """
import threading
from telegrad.distributed import LocalCluster, rpc

def inner(y):
    if y > 1000:
        threading.Event().wait()  # for ever
    return y * 2

def step(x):
    y = x + 1
    breakpoint()
    z = inner(y)
    return z

def through(to, x):
    return rpc.rpc_sync(to, step, (x,), timeout={SHORT})

if __name__ == "__main__":
    with LocalCluster(["ps", "trainer"]):
        {main}
"""
ONE_CALL = 'print("answer", rpc.rpc_sync("ps", step, (20,)))'
SHORT_CALL = f'print("answer", rpc.rpc_sync("ps", step, (20,), timeout={SHORT}))'


class Program:
    """A program that is spoken with, over a terminal or a pipe."""

    def __init__(self, read: int, write: int, pid: int) -> None:
        self._read, self._write = read, write
        self.pid = pid
        self.said = ""

    def hear(self, expected: str) -> str:
        """Return what it said up to a text, and the text."""
        end = time.monotonic() + PATIENCE
        while expected not in self.said:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"expected {expected!r}, got {self.said!r}"
            try:
                data = os.read(self._read, 1 << 16)
            except OSError:
                # The terminal of a process that has ended.
                data = b""
            assert data, f"expected {expected!r}, it ended with {self.said!r}"
            self.said += data.decode()
        heard, _, self.said = self.said.partition(expected)
        return heard + expected

    def type(self, line: str) -> None:
        os.write(self._write, f"{line}\n".encode())

    def ask(self, line: str) -> str:
        """Return what the prompt says to a line."""
        self.type(line)
        return self.hear("(Pdb) ")


@contextlib.contextmanager
def at_a_terminal(path: Path) -> Iterator[Program]:
    """Run a program whose terminal we are."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, str(path)])
    try:
        yield Program(fd, fd, pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(fd)


@contextlib.contextmanager
def piped(*arguments: str) -> Iterator[Program]:
    """Run a program that has no terminal."""
    with subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Program(process.stdout.fileno(), process.stdin.fileno(), process.pid)
        finally:
            process.kill()


@pytest.fixture
def program(tmp_path: Path):
    def write(main: str) -> Path:
        path = tmp_path / "program.py"
        path.write_text(PROGRAM.format(main=main.format(SHORT=SHORT), SHORT=SHORT))
        return path

    return write


def test_a_handler_has_the_terminal_of_the_process_that_started_its_worker(program):
    with at_a_terminal(program(ONE_CALL)) as told:
        assert "worker 'ps' is at a breakpoint" in told.hear("(Pdb) ")
        assert "21" in told.ask("p y")
        assert "42" in told.ask("p inner(y)")
        told.type("c")
        told.hear("answer 42")


def test_the_deadline_of_a_call_rests_while_its_handler_is_at_the_prompt(program):
    with at_a_terminal(program(SHORT_CALL)) as told:
        told.hear("(Pdb) ")
        told.ask(OUTLAST)
        told.type("c")
        told.hear("answer 42")


def test_the_deadlines_of_those_who_wait_by_way_of_others_rest_too(program):
    main = f'print("answer", rpc.rpc_sync("trainer", through, ("ps", 20), timeout={SHORT}))'
    with at_a_terminal(program(main)) as told:
        told.hear("(Pdb) ")
        told.ask(OUTLAST)
        told.type("c")
        told.hear("answer 42")


def test_a_deadline_passes_again_once_the_handler_goes_on(program):
    main = """
        try:
            rpc.rpc_sync("ps", step, (1000,), timeout={SHORT})
        except TimeoutError:
            print("too late")
"""
    with at_a_terminal(program(main)) as told:
        told.hear("(Pdb) ")
        told.type("c")
        told.hear("too late")


def test_stepping_ends_with_the_handler_and_never_enters_telegrad(program):
    with at_a_terminal(program(ONE_CALL)) as told:
        told.hear("(Pdb) ")
        stops = [told.ask("s") for _ in range(3)]
        assert any("--Call--" in each for each in stops)
        assert not any("telegrad/" in each for each in stops)
        for _ in range(10):
            told.type("n")
        told.hear("answer 42")


def test_who_quits_fails_the_call(program):
    main = """
        try:
            rpc.rpc_sync("ps", step, (20,))
        except BaseException as error:
            print("failed with", type(error).__name__)
        print("next", rpc.rpc_sync("ps", abs, (-3,)))
"""
    with at_a_terminal(program(main)) as told:
        told.hear("(Pdb) ")
        told.type("q")
        told.hear("failed with BdbQuit")
        told.hear("next 3")


def test_two_handlers_have_the_terminal_one_after_the_other(program):
    main = """
        calls = [rpc.rpc_async(to, step, (20,)) for to in ("ps", "trainer")]
        print("answers", [call.wait() for call in calls])
"""
    with at_a_terminal(program(main)) as told:
        first = told.hear("(Pdb) ")
        assert ("'ps'" in first) != ("'trainer'" in first)
        assert "at a breakpoint" not in told.ask("p y")
        told.type("c")
        second = told.hear("(Pdb) ")
        assert ("'ps'" in second) != ("'ps'" in first)
        told.type("c")
        told.hear("answers [42, 42]")


def test_without_a_terminal_it_is_said_how_to_attach(program):
    with piped(str(program(SHORT_CALL))) as told:
        told.hear("worker 'ps' is at a breakpoint, ")
        where = told.hear("\n")
        found = re.search(r"program\.py:\d+; attach with: telegrad debug (\S+)", where)
        assert found is not None, where
        directory = os.path.dirname(found[1])
        assert os.stat(directory).st_mode & 0o077 == 0
        with piped("-m", "telegrad", "debug", found[1]) as debugger:
            debugger.hear("(Pdb) ")
            assert "21" in debugger.ask("p y")
            debugger.ask(OUTLAST)
            debugger.type("c")
            told.hear("answer 42")
        assert not os.path.exists(directory)


def test_a_debugger_that_goes_away_quits(program):
    main = """
        try:
            rpc.rpc_sync("ps", step, (20,))
        except BaseException as error:
            print("failed with", type(error).__name__)
"""
    with piped(str(program(main))) as told:
        told.hear("attach with: telegrad debug ")
        with piped("-m", "telegrad", "debug", told.hear("\n").strip()) as debugger:
            debugger.hear("(Pdb) ")
        told.hear("failed with BdbQuit")


def test_it_is_said_when_nobody_waits_there(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "telegrad", "debug", str(tmp_path / "nothing.sock")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 2
    assert "no handler waits at" in done.stderr


def test_who_turned_breakpoints_off_has_none(program, monkeypatch):
    monkeypatch.setenv("PYTHONBREAKPOINT", "0")
    with piped(str(program(ONE_CALL))) as told:
        told.hear("answer 42")


def test_a_worker_that_ends_at_the_prompt_is_lost_and_the_terminal_free(program):
    main = """
        first = rpc.rpc_async("ps", step, (20,))
        try:
            first.wait()
        except ConnectionError:
            print("lost")
        print("answer", rpc.rpc_sync("trainer", step, (20,)))
"""
    with at_a_terminal(program(main)) as told:
        told.hear("(Pdb) ")
        told.type("import os; os._exit(3)")
        told.hear("lost")
        told.hear("(Pdb) ")
        told.type("c")
        told.hear("answer 42")


def test_what_the_page_shows_is_what_the_terminal_shows(tmp_path):
    page = (ROOT / "docs/debugging-a-handler.md").read_text()
    code = next(body for _, _, body, _ in blocks(page) if "breakpoint()" in body)
    shown = next(body for _, _, body, _ in blocks(page) if "(Pdb) p y" in body)
    path = tmp_path / "program.py"
    path.write_text(code)
    with at_a_terminal(path) as told:
        seen = told.hear("(Pdb) ")
        for typed in re.findall(r"\(Pdb\) (.*)", shown):
            told.type(typed)
            seen += told.hear("42" if typed == "c" else "(Pdb) ")
    if sys.version_info >= (3, 13):
        # It stops at the breakpoint itself, not behind it.
        shown = shown.replace("(7)step", "(6)step").replace("-> return y * 2", "-> breakpoint()")
    lines = [line.strip() for line in seen.splitlines()]
    for line in shown.replace("/home/me", str(tmp_path)).splitlines():
        assert any(each.endswith(line) for each in lines), (line, lines)


def test_under_telegrad_run_it_is_said_how_to_attach(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(
        "from telegrad.distributed import rpc\n"
        "def step(x):\n"
        "    breakpoint()\n"
        "    return x + 1\n"
        "rpc.init_rpc()\n"
        "if rpc.get_worker_info().id == 0:\n"
        f"    print('answer', rpc.rpc_sync(1, step, (41,), timeout={SHORT}))\n"
        "rpc.shutdown()\n"
    )
    with piped("-m", "telegrad", "run", "--workers", "2", str(path)) as told:
        told.hear("worker 'worker1' is at a breakpoint, ")
        told.hear("attach with: telegrad debug ")
        with piped("-m", "telegrad", "debug", told.hear("\n").strip()) as debugger:
            debugger.hear("(Pdb) ")
            assert "41" in debugger.ask("p x")
            debugger.ask(OUTLAST)
            debugger.type("c")
            told.hear("answer 42")
