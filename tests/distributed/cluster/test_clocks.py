"""The clock on the wall may jump: deadlines and liveness go by the one that only goes on."""

import ast
import itertools
import time
from pathlib import Path

import pytest
from tests.distributed import functions, handlers

import telegrad
import telegrad as tg
from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.errors import CallTimeout

WALL = {"time", "time_ns", "now", "utcnow", "today", "localtime", "gmtime"}
DAY = 86_400.0
MAY = {
    "rpc/membership/user_directory.py": "the age of files that dead processes left",
    "rpc/security/audit.py": "when what the audit tells of happened",
}
"""What reads it, and for what: nothing of that waits or is waited for."""


def jump(seconds):
    """Let the wall clock of this process leap to and fro, further each time it is read."""
    real, steps = time.time, itertools.count(1)
    time.time = lambda: real() + next(steps) * seconds * (-1) ** next(steps)
    time.time_ns = lambda: int(time.time() * 1e9)


@pytest.mark.processes
def test_passes_and_deadlines_hold_while_the_clocks_of_all_workers_jump(monkeypatch):
    monkeypatch.setattr(time, "time", time.time)
    monkeypatch.setattr(time, "time_ns", time.time_ns)
    with LocalCluster(["b", "c"], options=rpc.Options(lost_after=5.0)) as cluster:
        x = tg.tensor([5.0, 7.0], requires_grad=True)
        with autograd.context() as context_id:
            y = rpc.rpc_sync("b", handlers.through, (["c"], x))
            for name in cluster.names:
                rpc.rpc_sync(name, jump, (DAY,))
            autograd.backward(context_id, [y.sum()])
            assert autograd.get_gradients(context_id)[x].tolist() == [4.0, 9.0]
        with pytest.raises(CallTimeout):
            rpc.rpc_sync("b", functions.hold, timeout=0.2)
        assert rpc.rpc_sync("b", rpc.rpc_sync, ("c", functions.who)) == "c"


@pytest.mark.parametrize("folder", ["rpc", "distributed"])
def test_nothing_that_waits_or_decides_reads_the_clock_on_the_wall(folder):
    root = Path(telegrad.__file__).parent
    files = sorted((root / folder).rglob("*.py"))
    assert files
    for file in files:
        if str(file.relative_to(root)) in MAY:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
                module = ast.unparse(node.value).split(".")[-1]
                is_wall = module in ("time", "datetime", "date") and node.attr in WALL
                assert not is_wall, f"{file}, line {node.lineno}: {ast.unparse(node)}"
