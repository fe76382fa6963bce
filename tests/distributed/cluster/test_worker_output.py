"""What the workers of a LocalCluster print and log."""

import logging
import os
import sys

import pytest

from telegrad.distributed import LocalCluster, rpc
from telegrad.distributed.cluster import local_cluster
from telegrad.distributed.cluster.child import spawn
from telegrad.errors import WorkerLost

pytestmark = pytest.mark.processes


def say(text, stream="stdout"):
    print(text, file=getattr(sys, stream))


def note(level, text):
    logging.getLogger("mine.inner").log(level, text)


def fail_aloud():
    try:
        1 / 0  # noqa: B018
    except ZeroDivisionError:
        logging.getLogger("mine").exception("it failed")


def test_printed_lines_come_with_the_workers_name(capsys):
    with LocalCluster(["ps", "trainer"]):
        rpc.rpc_sync("ps", say, ("one\ntwo",))
        rpc.rpc_sync("trainer", say, ("three", "stderr"))
        rpc.rpc_sync("trainer", os.write, (1, b"four, without an end"))
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "[ps]      one",
        "[ps]      two",
        "[trainer] four, without an end",
    ]
    assert err.splitlines() == ["[trainer] three"]


def test_ctrl_c_while_a_worker_still_imports_is_left_to_its_parent(tmp_path, monkeypatch, capfd):
    # A module of that name, first on the path, as it is imported when the key is pressed.
    (tmp_path / "telegrad.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nos._exit(7)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    child = spawn("ps", 1)
    assert child.process.wait(30) == 7
    child.line.socket.close()
    assert capfd.readouterr().err == ""


def test_a_worker_that_still_imports_as_the_start_is_given_up_is_not_waited_for(
    tmp_path, monkeypatch
):
    (tmp_path / "telegrad.py").write_text("import signal\nsignal.pause()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(local_cluster, "_GRACE", 1000.0)
    cluster = LocalCluster(["ps"], start_timeout=0.0)
    with pytest.raises(WorkerLost, match="'ps' was not up in time"):
        cluster.start()


def test_logged_records_are_handled_here_by_the_levels_here(caplog):
    with caplog.at_level(logging.INFO, logger="mine"), LocalCluster(["ps"]):
        rpc.rpc_sync("ps", note, (logging.INFO, "worth telling"))
        rpc.rpc_sync("ps", note, (logging.DEBUG, "not worth it"))
        rpc.rpc_sync("ps", fail_aloud)
    said = [(r.name, r.levelname, r.getMessage()) for r in caplog.records if "mine" in r.name]
    assert said == [
        ("mine.inner", "INFO", "[ps] worth telling"),
        ("mine", "ERROR", "[ps] it failed"),
    ]
    assert "ZeroDivisionError" in caplog.text


def test_workers_can_be_left_to_write_as_they_like(capfd):
    with LocalCluster(["ps"], prefix_output=False):
        rpc.rpc_sync("ps", say, ("one", "stderr"))
    assert capfd.readouterr().err.splitlines() == ["one"]
