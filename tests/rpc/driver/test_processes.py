"""Whether a process of this machine has ended, asked of the kernel."""

import os
import subprocess
import sys

import pytest

from telegrad.rpc.driver.processes import has_ended

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asked of /proc")


def test_a_process_has_ended_when_it_is_a_zombie_and_when_it_is_gone():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert not has_ended(process.pid)
        process.stdin.close()
        # Without reaping it.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert has_ended(process.pid)
    assert has_ended(process.pid)


def test_where_the_kernel_does_not_say_no_process_is_taken_for_ended(monkeypatch):
    def hidden(path):
        raise PermissionError(path)

    monkeypatch.setattr(os, "readlink", hidden)
    assert not has_ended(1 << 22)
