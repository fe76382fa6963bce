"""What the stand-ins refuse of programs for ``torch.distributed.rpc``, in clear words."""

import pytest
import torch

import telegrad.torch.rpc as rpc
from telegrad.errors import UsageError
from telegrad.torch.rpc.api import _use_rpc_pickler


def calls_async(x: torch.Tensor) -> torch.Tensor:
    future = rpc.rpc_async("b", torch.neg, (x,))
    return future.wait()


def calls_sync(x: torch.Tensor) -> torch.Tensor:
    return rpc.rpc_sync("b", torch.neg, (x,))


def refers(x: torch.Tensor) -> torch.Tensor:
    return rpc.remote("b", torch.neg, (x,)).to_here()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("function", [calls_async, calls_sync, refers])
def test_a_function_that_calls_another_worker_is_not_scripted_and_the_error_says_so(function):
    with pytest.raises(UsageError, match=r"leave the decorator off this function"):
        torch.jit.script(function)


def test_a_call_with_another_pickler_is_refused(alone):
    with _use_rpc_pickler("another"):
        for call in (rpc.rpc_sync, rpc.rpc_async, rpc.remote):
            with pytest.raises(RuntimeError, match="got 'another' by _use_rpc_pickler"):
                call("alone", len, ([1],))
    assert rpc.rpc_sync("alone", len, ([1],)) == 1
