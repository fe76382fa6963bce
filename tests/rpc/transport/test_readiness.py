"""Waiting for a descriptor ends when it is ready, or at the deadline."""

import math
import socket
import time

import pytest

from telegrad.rpc.transport.readiness import is_ready


@pytest.fixture
def pair():
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        yield here, there


@pytest.mark.parametrize("deadline", [math.inf, 1e300, 1e10])
def test_what_is_ready_is_found_whatever_the_deadline(pair, deadline):
    here, there = pair
    assert is_ready(here.fileno(), deadline, for_write=True)
    there.send(b"x")
    assert is_ready(here.fileno(), deadline, for_write=False)


def test_what_is_not_ready_in_time_is_told(pair):
    here, _ = pair
    assert not is_ready(here.fileno(), time.monotonic() + 0.01, for_write=False)
    assert not is_ready(here.fileno(), -math.inf, for_write=False)
    with pytest.raises(BlockingIOError):
        while True:
            here.send(bytes(1 << 20))
    assert not is_ready(here.fileno(), time.monotonic() + 0.01, for_write=True)
