"""A cluster whose parent may open few files: the limit is raised, or the error says so at once."""

import subprocess
import sys

import pytest

pytest.importorskip("resource", reason="this system has no limits to lower")
pytestmark = pytest.mark.processes

SCRIPT = """
import os, resource, sys
from telegrad.distributed import LocalCluster, rpc
from telegrad.errors import UsageError

def opened():
    return len(os.listdir("/dev/fd"))

rest, hard = int(sys.argv[1]), int(sys.argv[2])
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
soft = opened() + rest
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, soft if hard else most))
try:
    with LocalCluster(8) as cluster:
        for name in cluster.names[1:]:
            assert rpc.rpc_sync(name, os.getpid) == cluster.process(name).pid
        print("raised" if resource.getrlimit(resource.RLIMIT_NOFILE)[0] > soft else "left")
        before = opened()
        cluster.add("more")
        assert rpc.rpc_sync("more", os.getpid) == cluster.process("more").pid
        print(opened() - before)
except UsageError as error:
    print(error)
    print(0)
"""


def run(rest: int, hard: bool = False) -> list[str]:
    arguments = [sys.executable, "-c", SCRIPT, str(rest), str(int(hard))]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_low_soft_limit_is_raised_and_a_high_one_is_left() -> None:
    said, each = run(50)
    assert said == "raised"
    assert int(each) == 6, "descriptors of the parent for one more worker"
    assert run(1000)[0] == "left"


def test_a_low_hard_limit_is_told_before_anything_is_started() -> None:
    said, _ = run(50, hard=True)
    assert "for 8 workers, but its limit is" in said
    assert "ulimit -Hn" in said
