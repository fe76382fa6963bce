"""Arrays between several devices of CuPy's, over a CuPy that notes what it is asked."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from telegrad.arrays import devices
from telegrad.errors import DeviceError

LOG = []
"""What was done, and on which device."""


class Device:
    """The one that is current in a ``with`` block."""

    current = 0

    def __init__(self, number=None):
        self.id = Device.current if number is None else number

    def __enter__(self):
        self.before, Device.current = Device.current, self.id

    def __exit__(self, *exc_info):
        Device.current = self.before


class Array(np.ndarray):
    """Numbers on a device."""

    __module__ = "cupy"
    device = Device(0)


class Stream:
    """The current one of the current device."""

    def synchronize(self):
        LOG.append((Device.current, "synchronize"))


def made(what):
    def make(array):
        LOG.append((Device.current, what))
        found = np.ascontiguousarray(array).view(Array)
        found.device = Device()
        return found

    return make


class Refusal(Exception):
    """What the runtime raises."""


@pytest.fixture
def cupy(monkeypatch):
    LOG.clear()
    runtime = SimpleNamespace(getDeviceCount=lambda: 2, CUDARuntimeError=Refusal)
    memory = SimpleNamespace(OutOfMemoryError=MemoryError)
    cuda = SimpleNamespace(Device=Device, runtime=runtime, memory=memory, get_current_stream=Stream)
    module = SimpleNamespace(
        cuda=cuda, asarray=made("asarray"), ascontiguousarray=made("ascontiguousarray")
    )
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


@pytest.mark.usefixtures("cupy")
def test_what_goes_to_another_device_is_dense_and_computed_before():
    array = np.arange(6.0).reshape(2, 3).view(Array)[:, ::2]
    found = devices.placed(array, "cuda:1")
    assert found.tolist() == [[0, 2], [3, 5]]
    assert devices.device_of(found) == "cuda:1"
    there = [(1, "asarray"), (1, "synchronize")]
    assert [(0, "ascontiguousarray"), (0, "synchronize"), *there] == LOG
    assert Device.current == 0


@pytest.mark.usefixtures("cupy")
def test_what_is_there_or_on_the_host_needs_no_other_device():
    array = np.arange(3.0).view(Array)
    assert devices.placed(array, "cuda:0") is array
    assert devices.placed(array, "cuda") is array
    assert LOG == []
    found = devices.placed(np.arange(3.0), "cuda:1")
    assert devices.device_of(found) == "cuda:1"
    assert LOG == [(1, "asarray"), (1, "synchronize")]


def test_a_device_that_fails_where_an_array_is_or_where_it_goes_is_named(cupy, monkeypatch):
    def refuse(array):
        raise Refusal("the device was reset")

    array = np.arange(3.0).view(Array)
    for name in ("asarray", "ascontiguousarray"):
        with monkeypatch.context() as patch, pytest.raises(DeviceError, match=r"'cuda:1' .* reset"):
            patch.setattr(cupy, name, refuse)
            devices.placed(array, "cuda:1")
    with pytest.raises(DeviceError, match="one of this process's 2 CUDA devices, got 'cuda:2'"):
        devices.placed(array, "cuda:2")
