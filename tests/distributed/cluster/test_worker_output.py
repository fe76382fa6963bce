"""What the workers of a LocalCluster print and log."""

import logging
import os
import sys

import pytest

from telegrad.distributed import LocalCluster, rpc

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
