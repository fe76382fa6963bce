"""What the tests on a device run on other workers."""

import threading
import time

import pytest
import torch

from telegrad.distributed import autograd, rpc
from telegrad.interop.torch.devices import peers, staging
from telegrad.interop.torch.values import arrays, tensors

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


def scaled_cube(x, by):
    return x * x * x * by.to(x.device)


def scaled_cube_on(name, x, by):
    return rpc.rpc_sync(name, scaled_cube, (x, by))


class Table:
    """The weights of an embedding that lives here."""

    weight = None


def looked_up(weight, places):
    return torch.nn.functional.embedding(places, weight, sparse=True)


def looked_up_there(rows, places):
    numbers = torch.arange(4 * rows, device=places.device) % 3
    Table.weight = torch.nn.Parameter(numbers.reshape(rows, 4).double())
    return looked_up(Table.weight, places)


def gradient_of_table(context_id):
    return autograd.get_gradients(context_id)[Table.weight]


_WENT = []


def watch_the_host(patch=None):
    """Note from now on what of a device's tensors goes to the host's memory in this process."""
    patch = patch or pytest.MonkeyPatch()

    def noting(function, place):
        def noted(*args):
            if args[place].is_cuda:
                _WENT.append(tuple(args[place].shape))
            return function(*args)

        return noted

    for module in (arrays, tensors):
        patch.setattr(module, "to_host", noting(staging.to_host, 0))
    patch.setattr(staging.Staging, "send", noting(staging.Staging.send, 2))


def through_the_host():
    """What was noted since this was last asked."""
    found = _WENT.copy()
    _WENT.clear()
    return found
