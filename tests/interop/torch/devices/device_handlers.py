"""What the tests on a device run on other workers."""

import threading
import time

import torch

from telegrad.distributed import rpc
from telegrad.interop.torch.devices import peers

OPERATIONS = ["add", "multiply", "subtract", "larger"]


def same(value):
    return value


def extremes(value):
    return value.min().item(), value.max().item()


def slowly_times(value, number):
    """The product, behind a second or so of other work on the device."""
    waste = torch.ones(2048, 2048, device=value.device)
    for _ in range(20):
        waste = waste @ waste / 2048
    return value * number + waste[0, 0] * 0


def keep_for_ever(value):
    threading.Event().wait(600)
    return value


def trim():
    """Give all of this worker's segments back; the bytes that are left."""
    found = peers.CHANNELS[rpc.current_worker()]
    found.trim(time.monotonic() + 1000)
    return found.held()


def leave_room_for(nbytes):
    """Have PyTorch's allocator refuse more than so many bytes in this process."""
    free, total = torch.cuda.mem_get_info()
    assert free > nbytes
    torch.cuda.set_per_process_memory_fraction(nbytes / total)


def apply(name, x, y):
    y = y.to(x.device)
    if name == "add":
        return x + 2 * y
    if name == "multiply":
        return x * y
    return x - y if name == "subtract" else torch.maximum(x, y + 1)
