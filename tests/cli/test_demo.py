"""The demo: what it trains, prints and leaves, and how its progress is shown."""

import io
import json
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from telegrad.cli import demo, main
from telegrad.cli.meter import Meter
from telegrad.cli.progress import LiveProgress, PlainProgress, Step, progress_for

WORKERS = {"main": "the loss", "first": "Linear 64→96"}


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "telegrad.demo", "--epochs", "10", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done, out


@pytest.mark.processes
def test_a_run_reaches_its_goal(demo_run):
    done, _ = demo_run
    assert done.stderr == ""
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert lines[0].startswith("220 steps over main (the activations and the loss), first (Linear")
    assert any(line.startswith("step    1/220  loss 2.") for line in lines)
    (last,) = [line for line in lines if line.startswith("step  220/220  loss 0.0")]
    (said,) = [line for line in lines if "held-out digits named rightly" in line]
    assert float(said.split("%")[0]) >= 95
    assert f"held-out {said.split('%')[0]}%" in last


@pytest.mark.processes
def test_a_run_checks_its_gradients_and_prints_a_table_of_workers(demo_run):
    lines = demo_run[0].stdout.splitlines()
    (check,) = [line for line in lines if line.startswith("one batch beside one process")]
    assert float(check.split()[-1]) <= 1e-5
    table = lines[lines.index(next(line for line in lines if line.startswith("worker  "))) + 1 :]
    assert [line.split()[0] for line in table[:4]] == ["main", "first", "second", "third"]


@pytest.mark.processes
def test_a_run_leaves_a_trace_and_two_pictures_and_says_where(demo_run):
    done, out = demo_run
    assert sorted(path.name for path in out.iterdir()) == ["graph.svg", "loss.svg", "trace.json"]
    assert f"left in {out}/" in done.stdout
    events = json.loads((out / "trace.json").read_text())["traceEvents"]
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {"worker main", "worker first", "worker second", "worker third"}
    assert any("AffineBiased" in e["name"] for e in events)
    graph = (out / "graph.svg").read_text()
    assert all(f">{name}<" in graph for name in ("main", "first", "second", "third"))
    for name in ("graph.svg", "loss.svg"):
        assert ElementTree.fromstring((out / name).read_text()).tag.endswith("svg")


@pytest.mark.parametrize(
    ("reached", "difference", "code"), [(0.97, 1e-7, 0), (0.94, 1e-7, 1), (0.97, 1e-3, 1)]
)
def test_the_exit_code_says_whether_a_whole_run_met_its_goal(
    monkeypatch, tmp_path, capsys, reached, difference, code
):
    monkeypatch.setattr(demo, "train", lambda *_: ([2.0, 0.1], reached, difference))
    assert demo.main(out=tmp_path / "made" / "here") == code
    assert (tmp_path / "made" / "here" / "loss.svg").exists()
    assert ("expected at least 95%" in capsys.readouterr().out) == bool(code)


@pytest.mark.parametrize(("difference", "code"), [(1e-7, 0), (1e-3, 1)])
def test_a_run_of_few_epochs_says_what_it_reached_and_fails_for_its_gradients_alone(
    monkeypatch, tmp_path, capsys, difference, code
):
    monkeypatch.setattr(demo, "train", lambda *_: ([2.0, 1.5], 0.61, difference))
    assert main(["demo", "--epochs", "1", "--out", str(tmp_path)]) == code
    said = capsys.readouterr().out
    assert "61.0% of 360 held-out digits named rightly after 2 steps" in said
    expected = "95% takes more epochs than 1: leave --epochs out for 12"
    assert (expected in said) == (code == 0)


@pytest.mark.processes
@pytest.mark.parametrize("end", ["Ctrl-C", "closed pipe"])
def test_a_run_that_is_cut_off_ends_without_a_traceback(tmp_path, end):
    command = [sys.executable, "-m", "telegrad", "demo", "--epochs", "5000", "--out", str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}

    def heed_interrupts():
        # Where the tests themselves run in a script's background, they would be ignored.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(command, **pipes, preexec_fn=heed_interrupts) as running:
        try:
            while not running.stdout.readline().startswith("step"):
                assert running.poll() is None
            if end == "Ctrl-C":
                running.send_signal(signal.SIGINT)
            else:
                running.stdout.close()
            assert running.wait(timeout=30) == (130 if end == "Ctrl-C" else 1)
            assert running.stderr.read() == ""
        finally:
            running.kill()


def test_no_epochs_are_refused_before_anything_starts(capsys):
    assert main(["demo", "--epochs", "0"]) == 2
    assert capsys.readouterr().err == "telegrad: expected --epochs of at least 1, got 0\n"


# How progress is shown.


def run(progress, steps):
    meter = Meter()
    meter.by_worker["first"].calls = 1234
    meter.by_worker["first"].sent = 2048
    progress.start(steps, WORKERS, meter)
    for i in range(steps):
        progress.step(Step(1.0 / (i + 1), 0.5, 0.0021, 170_000))
    progress.stop()


def test_plain_lines_come_first_last_and_now_and_then(capsys):
    run(PlainProgress(every=1e9), 50)
    assert capsys.readouterr().out.splitlines() == [
        "50 steps over main (the loss), first (Linear 64→96)",
        "step    1/50  loss 1.0000  held-out 50.0%  2.1 ms a step  166 KiB a step",
        "step   50/50  loss 0.0200  held-out 50.0%  2.1 ms a step  166 KiB a step",
    ]
    run(PlainProgress(every=0), 3)
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_on_a_terminal_there_is_a_table_of_workers_and_a_bar():
    console = pytest.importorskip("rich.console", reason="rich is not installed")
    shown = io.StringIO()
    run(LiveProgress(console.Console(file=shown, force_terminal=True, width=100)), 4)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.getvalue())
    for word in ("worker", "calls", "first", "Linear 64→96", "1,234", "loss 0.2500", "4/4"):
        assert word in text


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_display_is_live_where_there_is_a_terminal_and_rich(monkeypatch):
    pytest.importorskip("rich", reason="rich is not installed")
    assert isinstance(progress_for(Terminal()), LiveProgress)
    assert isinstance(progress_for(io.StringIO()), PlainProgress)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert isinstance(progress_for(Terminal()), PlainProgress)
