"""A timeout that is none is a clear error, the same wherever one is taken."""

import math

import numpy as np
import pytest
from tests.rpc import simulated
from tests.rpc.neighbours import neighbours

from telegrad.distributed import LocalCluster, rpc
from telegrad.errors import UsageError
from telegrad.rpc.future import Future, wait_all
from telegrad.rpc.options import Options
from telegrad.rpc.timeouts import seconds

NONE = ["1", math.nan, -5, -math.inf, -(10**400), [1], 1j, np.ones(2), object()]


@pytest.mark.parametrize("timeout", NONE, ids=lambda value: type(value).__name__)
def test_what_is_no_timeout_is_refused_everywhere(timeout):
    with neighbours("a", "b") as (a, _):
        there = a.remote("b", dict)
        assert there.to_here() == {}
        for take in (
            lambda: a.rpc_sync("b", simulated.who, timeout=timeout),
            lambda: a.rpc_async("b", simulated.who, timeout=timeout),
            lambda: a.rpc_sync("a", simulated.who, timeout=timeout),
            lambda: a.remote("b", simulated.who, timeout=timeout),
            lambda: a.ask_service("b", "none", timeout=timeout),
            lambda: there.to_here(timeout),
            lambda: there.rpc_sync(timeout).keys(),
            lambda: there.rpc_async(timeout).keys(),
            lambda: there.remote(timeout).keys(),
            lambda: Future().wait(timeout),
            lambda: a.rpc_async("b", simulated.who).wait(timeout),
            lambda: wait_all([Future()], timeout),
            lambda: rpc.shutdown(timeout=timeout),
        ):
            with pytest.raises(UsageError, match="expected a timeout of 0 or more seconds, got "):
                take()
        for name in ("rpc_timeout", "spin", "lost_after", "join_timeout"):
            with pytest.raises(UsageError, match=f"expected {name} of 0 or more seconds, got "):
                Options(**{name: timeout})
        with pytest.raises(UsageError, match="expected start_timeout of 0 or more seconds, got "):
            LocalCluster(["b"], start_timeout=timeout)


@pytest.mark.parametrize("timeout", [np.float32(5), np.int64(5), 5, True, math.inf, 10**400])
def test_any_number_of_seconds_is_taken(timeout):
    assert type(seconds(timeout)) is float
    options = Options(rpc_timeout=timeout, lost_after=timeout, join_timeout=timeout)
    with neighbours("a", "b", options=options) as (a, _):
        assert a.rpc_sync("b", simulated.who, timeout=timeout) == "b"
        assert a.rpc_async("b", simulated.who).wait(timeout) == "b"
        assert a.remote("b", simulated.who, timeout=timeout).to_here(timeout) == "b"
