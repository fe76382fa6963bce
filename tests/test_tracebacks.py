"""What a user sees of an error: their own frames, here and on other workers."""

import linecache
import os
import signal
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path

import pytest
import torch

import telegrad as tg
from telegrad import tracebacks
from telegrad.errors import InternalError, ShapeError
from telegrad.interop.torch.graph.partial_pass import CheckingEngine
from telegrad.interop.torch.graph.pytorch_engine import run_backward

PROGRAM = """
import os, signal, sys, threading, time
import psutil
from telegrad.distributed import LocalCluster, rpc

def inner(x):
    return 1 / x

def outer(x):
    return inner(x)

def nested(x):
    return rpc.rpc_sync("b", outer, (x,))

def interrupt(caller):
    # As Ctrl-C would, once the program sleeps because it waits for this answer.
    while psutil.Process(caller).status() != "sleeping":
        time.sleep(0.01)
    os.kill(caller, signal.SIGINT)
    time.sleep(1000)

if __name__ == "__main__":
    with LocalCluster(["a", "b"]):
"""
OURS = str(Path(tg.__file__).parent)


def run(body, folder, **environment):
    """Run a program to its end, which is an error; return what it wrote about that."""
    script = PROGRAM + textwrap.indent(textwrap.dedent(body), " " * 8)
    file = folder / "program.py"
    file.write_text(script)
    done = subprocess.run(
        [sys.executable, str(file)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        # What a script starts in its background ignores Ctrl-C otherwise.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert done.returncode != 0
    return done.stderr


@pytest.mark.processes
def test_a_remote_error_shows_the_programs_frames_on_both_sides(tmp_path):
    said = run("rpc.rpc_sync('a', nested, (0,))", tmp_path)
    assert OURS not in said
    assert said.count("in inner") == 1
    assert said.count("in nested") == 1
    assert said.index("rpc.rpc_sync('a', nested, (0,))") < said.index("raised on worker 'b'")


@pytest.mark.processes
def test_the_environment_can_ask_for_all_frames(tmp_path):
    said = run("rpc.rpc_sync('a', outer, (0,))", tmp_path, TELEGRAD_TRACEBACK="full")
    here, there = said.split("raised on worker 'a'")
    assert "in rpc_sync" in here
    assert "in _run_call" in there


@pytest.mark.processes
def test_an_error_of_a_thread_shows_the_programs_frames(tmp_path):
    body = """
        thread = threading.Thread(target=lambda: rpc.rpc_sync("a", outer, (0,)), name="mine")
        thread.start()
        thread.join()
        sys.exit(1)
    """
    said = run(body, tmp_path)
    assert "Exception in thread mine" in said
    assert "in inner" in said
    assert OURS not in said


@pytest.mark.processes
def test_ctrl_c_tells_nothing_of_what_we_were_handling(tmp_path):
    body = """
        rpc.rpc_sync("a", interrupt, (os.getpid(),))
    """
    said = run(body, tmp_path)
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert "During handling" not in said
    assert OURS not in said


@pytest.mark.processes
def test_what_ctrl_c_interrupts_has_no_context_for_those_who_catch_it(tmp_path):
    body = """
        try:
            rpc.rpc_sync("a", interrupt, (os.getpid(),))
        except KeyboardInterrupt as interrupt:
            sys.exit(repr(interrupt.__context__))
    """
    assert run(body, tmp_path).rstrip().endswith("None")


@pytest.mark.processes
def test_ipython_shows_the_programs_frames_and_the_lines_of_cells_that_ran_elsewhere(tmp_path):
    script = tmp_path / "cells.py"
    script.write_text(
        textwrap.dedent(
            """
            from IPython.core.interactiveshell import InteractiveShell
            shell = InteractiveShell.instance()
            shell.run_cell("from telegrad.distributed import LocalCluster, rpc")
            shell.run_cell("cluster = LocalCluster(['a'])\\ncluster.__enter__()")
            shell.run_cell("def divide(x):\\n    return 1 / x  # in a cell")
            shell.run_cell("rpc.rpc_sync('a', divide, (0,))")
            shell.run_cell("cluster.__exit__()")
            """
        )
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert "ZeroDivisionError" in said
    assert "api.py" not in said
    assert "call.py" not in said
    there = said[said.index("raised on worker 'a'") :]
    assert "return 1 / x  # in a cell" in there


def test_a_local_error_loses_our_frames_while_it_is_shown_and_has_them_again():
    with pytest.raises(ShapeError) as caught:
        tg.ones((2, 3)) @ tg.ones((2, 3))
    error = caught.value
    frames = traceback.extract_tb(error.__traceback__)
    assert any(frame.filename.startswith(OURS) for frame in frames)
    with tracebacks.shortened(error):
        shown = traceback.extract_tb(error.__traceback__)
    assert [frame.filename for frame in shown] == [__file__]
    assert len(traceback.extract_tb(error.__traceback__)) == len(frames)
    assert OURS not in "".join(tracebacks.told(error).format())


def _raised_by_us(error):
    """The error as it is when a function of the package raised it."""
    code = compile("def fail(error):\n    raise error", f"{OURS}/ops/creation.py", "exec")
    space = {}
    exec(code, space)
    try:
        space["fail"](error)
    except Exception as caught:
        return caught


@pytest.mark.parametrize("error", [InternalError("a bug"), AttributeError("another")])
def test_what_may_be_a_fault_of_ours_is_told_whole(error):
    assert "in fail" in "".join(tracebacks.told(_raised_by_us(error)).format())


@pytest.mark.parametrize("pull", [run_backward, CheckingEngine().run_backward])
def test_what_pytorchs_engine_says_of_the_programs_graph_is_told_without_our_frames(pull):
    x = torch.ones(2, requires_grad=True)
    y = x.exp().sum()
    y.backward()
    with pytest.raises(RuntimeError, match="a second time") as caught:
        pull((y,), (torch.ones(()),), False, False, (), True, True)
    assert OURS not in "".join(tracebacks.told(caught.value).format())


def test_what_we_handled_ourselves_is_left_out_and_what_the_program_handled_is_not():
    try:
        raise KeyError("the program's")
    except KeyError as of_program:
        inner = _raised_by_us(BlockingIOError("ours"))
        inner.__traceback__ = inner.__traceback__.tb_next  # it was caught in our own code, too
        inner.__context__ = of_program
        error = ValueError("in the end")
        error.__context__ = inner
        said = "".join(tracebacks.told(error).format())
    assert "BlockingIOError" not in said
    assert "the program's" in said


def test_causes_and_groups_lose_our_frames_as_well():
    error = ExceptionGroup("two", [_raised_by_us(ShapeError("one")), ValueError("plain")])
    error.__cause__ = _raised_by_us(ShapeError("cause"))
    said = "".join(tracebacks.told(error).format())
    assert "cause" in said
    assert "in fail" not in said
    with tracebacks.shortened(error):
        assert "in fail" not in "".join(traceback.format_exception(error))


def test_lines_are_filled_in_for_what_was_typed_here_and_for_no_file():
    places = [("<cell 7>", 2), (__file__, 1), ("<cell 7>", 9)]
    text = "\n".join(f'  File "{name}", line {line}, in f' for name, line in places)
    linecache.getlines(__file__)
    linecache.cache["<cell 7>"] = (10, None, ["def f():\n", "    return g()\n"], "<cell 7>")
    try:
        filled = tracebacks.fill_lines(text)
    finally:
        del linecache.cache["<cell 7>"]
    first, *rest = text.split("\n")
    assert filled.split("\n") == [first, "    return g()", *rest]
