"""Workers that share a directory but not their PID namespace, as containers may."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rpc.connected import PATIENCE
from tests.rpc.inside import ping_often
from tests.rpc.neighbours import eventually

from telegrad.rpc.current import current_worker
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.startup import start_worker
from telegrad.rpc.transport import PrivateDirectory
from telegrad.rpc.worker import Worker

pytestmark = pytest.mark.processes

WORKER = """
import sys
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.startup import start_worker
address, key = sys.argv[1:]
worker = start_worker("b", 1, address, ClusterKey.load(key))
print(worker.info.incarnation, flush=True)
sys.stdin.read()
worker.close()
"""
# Its /proc is still that of the namespace outside, where its numbers mean other processes, or none.
FOREIGN_PROC = """
import os
from telegrad.rpc.driver.processes import has_ended
children = []
try:
    for _ in range(100):
        here, there = os.pipe()
        children.append((pid := os.fork(), there))
        if not pid:
            os.close(there)
            os.read(here, 1)
            os._exit(0)
        os.close(here)
        if not os.path.exists(f"/proc/{pid}"):
            break
    print([pid for pid, _ in children if has_ended(pid)])
finally:
    for _, there in children:
        os.close(there)
"""


@contextlib.contextmanager
def unshared(*command: str) -> Iterator["subprocess.Popen[str]"]:
    """Run the command as the first process of a PID namespace of its own."""
    if not shutil.which("unshare") or os.geteuid() != 0:
        pytest.skip("making a PID namespace needs root and the command unshare")
    if subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True).returncode:
        pytest.skip("this machine does not allow PID namespaces")
    process = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    try:
        yield process
    finally:
        process.communicate(timeout=PATIENCE)


def look_after_peers(worker: Worker) -> None:
    """Return when the worker has looked after those that it has met several times."""
    ping_often(worker, 0.05)
    for path in worker.peers.endpoints():
        for _ in range(4):
            looked = path.liveness.ticked
            assert eventually(lambda path=path, looked=looked: path.liveness.ticked > looked)
        assert not path.closed


def look_after_peers_there() -> None:
    look_after_peers(current_worker())


def test_a_worker_is_not_lost_because_its_process_is_not_seen_from_here(tmp_path: Path) -> None:
    key = ClusterKey.fresh()
    key.save(tmp_path / "key")
    with PrivateDirectory.make() as directory:
        a = start_worker("a", 0, directory.socket_address("a"), key)
        address = directory.socket_address("b")
        try:
            with unshared(
                "--mount-proc", sys.executable, "-c", WORKER, address, str(tmp_path / "key")
            ) as b:
                assert b.stdout is not None
                a.add_peer(WorkerInfo("b", 1, int(b.stdout.readline())), address)
                a.rpc_sync("b", look_after_peers_there)
                look_after_peers(a)
        finally:
            a.close()


def test_a_process_is_not_taken_for_gone_by_the_proc_of_another_namespace() -> None:
    with unshared(sys.executable, "-c", FOREIGN_PROC) as process:
        assert process.stdout is not None
        assert process.stdout.read().strip() == "[]"
