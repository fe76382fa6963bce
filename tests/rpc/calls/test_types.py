"""What a type checker is told of calls and references."""

import typing
from collections.abc import Coroutine
from typing import Any

import pytest

from telegrad.distributed import rpc
from telegrad.rpc.api import T


@pytest.mark.parametrize(
    ("call", "gives"),
    [(rpc.rpc_sync, T), (rpc.rpc_async, rpc.Future[T]), (rpc.remote, rpc.RRef[T])],
)
def test_what_a_call_gives_is_told_by_its_function(call, gives):
    marked, plain = map(typing.get_type_hints, typing.get_overloads(call))
    later = rpc.Future[T] | Coroutine[Any, Any, T]
    assert typing.get_args(marked["func"])[-1] == later
    assert typing.get_args(plain["func"])[-1] == T
    assert marked["return"] == plain["return"] == gives


def test_a_reference_gives_what_it_is_of():
    (of,) = rpc.RRef.__parameters__
    assert of.__covariant__
    for give in (rpc.RRef.to_here, rpc.RRef.local_value):
        assert typing.get_type_hints(give)["return"] is of
