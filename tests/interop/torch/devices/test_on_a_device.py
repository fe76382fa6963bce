"""Device segments and staged copies between processes, on a real device."""

import os
import random
import subprocess
import sys
import time

import msgspec
import pytest
import torch
from tests.interop.torch.devices import device_handlers as there
from tests.interop.torch.devices.ledger import Ledger

from telegrad.distributed import LocalCluster, autograd, rpc
from telegrad.distributed.rpc import Options
from telegrad.errors import DeviceError, ProtocolViolation, WorkerLost
from telegrad.interop.torch.devices import peers
from telegrad.interop.torch.devices.channels import INTRODUCE
from telegrad.interop.torch.devices.runtime import runtime

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.processes,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

CUDA = "cuda:0"
MB = 1 << 20
HOST = Options(device_segments=0)
"""As if on another host."""
TCP = Options(device_segments=0, segments=False, unix_sockets=False)
"""As between hosts, sockets included."""
SMALL = Options(device_segments=8 * MB)
DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "bool", "complex64", "float8_e5m2"]


def channels():
    return peers.CHANNELS[rpc.current_worker()]


def echo(value, to="b"):
    return rpc.rpc_sync(to, there.same, (value,))


WAYS = {"segments": None, "host": HOST, "between hosts": TCP, "small pool": SMALL}


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_every_dtype_shape_and_size_arrives_as_it_left(options):
    torch.manual_seed(0)
    with LocalCluster(["b"], options=options):
        for name in DTYPES:
            dtype = getattr(torch, name)
            for shape in [(), (0, 3), (2, 3), (300, 1000), (3, 1 << 20)]:
                value = (torch.rand(shape, device=CUDA) * 9).to(dtype)
                for each in (value, value.mT if value.ndim > 1 else value):
                    found = echo(each)
                    assert found.dtype is dtype
                    assert str(found.device) == CUDA
                    assert found.shape == each.shape
                    assert torch.equal(
                        found.contiguous().cpu().view(-1).view(torch.uint8),
                        each.contiguous().cpu().view(-1).view(torch.uint8),
                    )
        is_staged = options in (HOST, TCP)
        held = 0 if is_staged else channels().held()
        assert held <= (8 * MB if options is SMALL else 4 << 30)
        assert (held > 0) == (not is_staged)


@pytest.mark.parametrize("options", [None, HOST, TCP], ids=["segments", "host", "between hosts"])
def test_what_is_overwritten_after_the_call_arrives_with_its_old_values(options):
    with LocalCluster(["b"], options=options):
        value = torch.zeros(4 * MB, device=CUDA)
        futures = []
        for number in range(20):
            value.fill_(number)
            futures.append(rpc.rpc_async("b", there.extremes, (value,)))
        value.fill_(-1)
        for number, future in enumerate(futures):
            assert future.wait() == (number, number)


def test_results_are_in_order_on_whichever_stream_takes_them():
    with LocalCluster(["b"]):
        value = torch.ones(16 * MB, device=CUDA)
        side = torch.cuda.Stream()
        for number in range(10):
            # Read by this thread while it waits for the second, on the default stream.
            first = rpc.rpc_async("b", there.slowly_times, (value, number))
            second = rpc.rpc_async("b", there.slowly_times, (value, -1))
            second.wait()
            with torch.cuda.stream(side):
                found = first.wait()
                assert (found.min().item(), found.max().item()) == (number, number)


@pytest.fixture
def ledger(monkeypatch):
    """What this process takes of the device, apart from PyTorch, and has not given back."""
    made = Ledger(runtime()._library)
    monkeypatch.setattr(runtime(), "_library", made)
    return made


def test_segments_are_used_again_and_go_back_when_idle(ledger):
    with LocalCluster(["b"]):
        value = torch.ones(64 * MB, dtype=torch.uint8, device=CUDA)
        for _ in range(20):
            echo(value)
        torch.cuda.synchronize()
        assert channels().held() <= 3 * 64 * MB
        assert sum(ledger.taken.values()) == channels().held()
        channels().trim(time.monotonic() + 1000)
        assert channels().held() == sum(ledger.taken.values()) == 0
        assert rpc.rpc_sync("b", there.trim) == 0
        # Those of the other side were mapped here.
        assert ledger.taken == {}
        assert torch.equal(echo(value), value)


def test_nothing_is_left_on_the_device_after_shutdown(ledger):
    value = torch.ones(64 * MB, dtype=torch.uint8, device=CUDA)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    for options in (None, None, HOST):
        reserved = torch.cuda.memory_reserved()
        with LocalCluster(["b", "c"], options=options):
            for name in ("b", "c"):
                echo(value, name)
            assert bool(ledger.taken) == (options is None)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        # All that this process has of it; what the others had ended with them.
        assert ledger.taken == {}
        assert torch.cuda.memory_reserved() <= reserved + 2 * MB
    assert not [name for name in os.listdir("/dev/shm") if "telegrad" in name]


def test_a_receiver_that_dies_with_a_segment_costs_its_calls_and_no_memory():
    value = torch.ones(64 * MB, dtype=torch.uint8, device=CUDA)
    with LocalCluster(["b", "c"]) as cluster:
        echo(value)
        waiting = rpc.rpc_async("b", there.keep_for_ever, (value,))
        pid = rpc.rpc_sync("b", os.getpid)
        os.kill(pid, 9)
        with pytest.raises(WorkerLost):
            waiting.wait()
        assert torch.equal(echo(value, "c"), value)
        end = time.monotonic() + 20
        while channels()._pools[0].of("b") and time.monotonic() < end:
            rpc.rpc_sync("c", os.getpid)
        assert channels()._pools[0].of("b") == []
        del cluster


def test_a_device_without_room_there_is_an_error_here_that_names_it():
    with LocalCluster(["b"]):
        rpc.rpc_sync("b", there.leave_room_for, (64 * MB,))
        value = torch.ones(512 * MB, dtype=torch.uint8, device=CUDA)
        with pytest.raises(DeviceError, match=r"room on 'cuda:0' .* from worker 'main'"):
            echo(value)
        small = torch.ones(3, device=CUDA)
        assert torch.equal(echo(small), small)


@pytest.mark.parametrize("what", ["freed", "none at all"])
def test_a_handle_that_leads_nowhere_is_refused_there_and_nothing_is_left(what, ledger):
    with LocalCluster(["b"]):
        value = torch.ones(MB, device=CUDA)
        assert torch.equal(echo(value), value)
        cuda, mine = runtime(), channels()
        with cuda.on(0):
            memory = cuda.allocate(4 * MB)
            handle = cuda.export_memory(memory)
            cuda.free(memory)
        taken = dict(ledger.taken)
        honest = mine._pools[0].of("b")[0].introduction(mine.uuids[0])
        forged = msgspec.structs.replace(
            honest, segment=1 << 30, memory=handle if what == "freed" else bytes(len(handle))
        )
        answer, _ = rpc.current_worker().ask_service("b", INTRODUCE, forged)
        assert "worker 'b' can't open it: cudaIpcOpenMemHandle failed" in answer
        assert torch.equal(echo(value), value)
        assert ledger.taken == taken


def test_a_segment_that_is_said_to_be_larger_than_the_device_is_refused_there():
    with LocalCluster(["b"]):
        value = torch.ones(MB, device=CUDA)
        assert torch.equal(echo(value), value)
        mine = channels()
        honest = mine._pools[0].of("b")[0].introduction(mine.uuids[0])
        with runtime().on(0):
            memory = runtime().allocate(4 * MB)
            try:
                forged = msgspec.structs.replace(
                    honest,
                    segment=1 << 30,
                    size=1 << 50,
                    memory=runtime().export_memory(memory),
                )
                said = (
                    r"'main' says that its segment 1073741824 on cuda:0 has 1125899906842624 .*has"
                )
                with pytest.raises(ProtocolViolation, match=said):
                    rpc.current_worker().ask_service("b", INTRODUCE, forged)
            finally:
                runtime().free(memory)
        assert torch.equal(echo(value), value)


def test_a_forked_process_leaves_the_segments_alone():
    with LocalCluster(["b"]):
        value = torch.ones(MB, device=CUDA)
        echo(value)
        mine = channels()
        child = os.fork()
        if not child:
            status = 1
            try:
                mine.close()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert torch.equal(echo(value), value)


def test_segments_do_without_the_allocator_of_pytorch():
    code = (
        "import torch; from tests.interop.torch.devices.test_on_a_device import *\n"
        "with LocalCluster(['b']):\n"
        "    value = torch.rand(MB, device=CUDA)\n"
        "    assert torch.equal(echo(value), value)\n"
        "    print(channels().held() > 0)"
    )
    environment = {**os.environ, "PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "True", done.stderr


@pytest.mark.parametrize("options", [None, HOST], ids=["segments", "host"])
@pytest.mark.parametrize("seed", range(4))
def test_random_programs_over_device_and_host_have_exact_gradients(seed, options):
    with LocalCluster(["b", "c"], options=options):
        for number in range(5):
            _compare(random.Random(100 * seed + number))


def _compare(chance):
    steps = []
    # So few, and of small integers, that every sum is exact in whatever order it is made.
    for _ in range(chance.randint(3, 5)):
        where = chance.choice(["here", "b", "c", "there"])
        steps.append((where, chance.choice(there.OPERATIONS), chance.random(), chance.random()))
    size = chance.choice([3, 700, 1 << 18])
    leaves = [
        (torch.arange(size, device=device) % 3).double().requires_grad_()
        for device in (CUDA, "cpu", CUDA)
    ]
    expected = torch.autograd.grad(_run(steps, leaves, False), leaves, allow_unused=True)
    with autograd.context() as context_id:
        autograd.backward(context_id, [_run(steps, leaves, True)])
        found = autograd.get_gradients(context_id)
        for leaf, gradient in zip(leaves, expected):
            assert (leaf in found) == (gradient is not None)
            if gradient is not None:
                assert found[leaf].device == leaf.device
                assert torch.equal(found[leaf], gradient)


def _run(steps, leaves, is_distributed):
    values = list(leaves)
    for where, name, first, second in steps:
        x, y = values[int(first * len(values))], values[int(second * len(values))]
        if where == "there":
            values.append(x.to(CUDA if x.device.type == "cpu" else "cpu"))
        elif where == "here" or not is_distributed:
            values.append(there.apply(name, x, y))
        else:
            values.append(rpc.rpc_sync(where, there.apply, (name, x, y)))
    return values[-1].sum().cpu()
