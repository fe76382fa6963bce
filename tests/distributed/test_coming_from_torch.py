"""The page for those who come from PyTorch: its PyTorch program runs, and its names are there."""

import importlib
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coming-from-torch.md"
SERVER = """
import torch.distributed.rpc as rpc
rpc.init_rpc("server", rank=1, world_size=2)
rpc.shutdown()
"""


def programs():
    """PyTorch's program and ours, as the page has them."""
    text = PAGE.read_text()
    (theirs,) = re.findall(r"^```\n(import torch\n.*?)^```$", text, re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ours = next(block for block in blocks if "range(20)" in block)
    return theirs, ours


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.mark.processes
def test_the_program_for_pytorch_is_one():
    pytest.importorskip("torch.distributed.rpc", reason="PyTorch is not installed")
    theirs, _ = programs()
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", code],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for code in (theirs, SERVER)
    ]
    try:
        printed, complaints = processes[0].communicate(timeout=120)
        assert printed.strip() == "True", complaints
        assert processes[1].wait(60) == 0
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_the_two_programs_have_the_same_loop():
    def loop(program):
        lines = [line.strip() for line in program.splitlines()]
        begin = lines.index("for step in range(20):")
        return lines[begin : begin + 6]

    theirs, ours = programs()
    assert loop(theirs) == loop(ours)


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("autograd", "backward grad Function detect_anomaly checkpoint"),
        ("autograd.graph", "saved_tensors_hooks Node"),
        ("autograd.functional", "jacobian hessian jvp vjp hvp vhp"),
        (
            "autograd.forward_ad",
            "dual_level enter_dual_level exit_dual_level make_dual unpack_dual",
        ),
        (
            "distributed.rpc",
            "init_rpc shutdown rpc_sync rpc_async remote RRef get_worker_info async_execution "
            "Options Future collect_all wait_all",
        ),
        ("distributed.autograd", "context backward get_gradients grad gradients draw"),
        ("distributed.optim", "DistributedOptimizer"),
        ("distributed", "RemoteModule LocalCluster"),
        ("optim", "SGD Adam AdamW RMSprop Adagrad lr_scheduler"),
        ("nn", "functional init utils"),
        ("profiler", "profile"),
    ],
)
def test_the_names_that_the_page_promises_are_there(module, names):
    text = PAGE.read_text()
    found = importlib.import_module(f"telegrad.{module}")
    for name in names.split():
        assert name in text
        assert hasattr(found, name)


@pytest.mark.parametrize("name", ["telegrad.distributed.rpc", "telegrad.torch.rpc"])
def test_a_reference_may_be_annotated_with_what_it_refers_to(name):
    def keep(reference: importlib.import_module(name).RRef[int]):
        return reference

    assert keep.__annotations__["reference"].__args__ == (int,)
