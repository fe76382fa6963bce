"""What holds for every command of `telegrad`: how it ends where its output can't be written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.processes
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no full device")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments",
    [["keygen", "made", "--workers", "ps"], ["demo", "--epochs", "1", "--out", "made"]],
    ids=["keygen", "demo"],
)
def test_output_that_finds_no_room_is_told_in_one_line(
    arguments: list[str], unbuffered: str, tmp_path: Path
) -> None:
    done = run_into_full_device(arguments, unbuffered, tmp_path)
    assert (done.stderr, done.returncode) == ("telegrad: No space left on device\n", 1)


@pytest.mark.processes
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no full device")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["--help"], ["keygen", "--help"], ["--version"]])
def test_help_that_finds_no_room_is_told_in_one_line(
    arguments: list[str], unbuffered: str, tmp_path: Path
) -> None:
    done = run_into_full_device(arguments, unbuffered, tmp_path)
    assert (done.stderr, done.returncode) == ("telegrad: No space left on device\n", 1)


def run_into_full_device(
    arguments: list[str], unbuffered: str, directory: Path
) -> subprocess.CompletedProcess[str]:
    with open("/dev/full", "w") as full:
        return subprocess.run(
            [sys.executable, "-m", "telegrad", *arguments],
            cwd=directory,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
