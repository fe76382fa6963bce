"""Names of ``torch.distributed.rpc.internal`` that programs use beside the calls themselves."""

import enum
from collections import namedtuple
from typing import Any

from telegrad.errors import NotInitialized
from telegrad.rpc.references.rref import RRef
from telegrad.rpc.wire import pickler

PythonUDF = namedtuple("PythonUDF", ["func", "args", "kwargs"])
"""A function and what it is called with."""


class RPCExecMode(enum.Enum):
    """The ways to make a call."""

    SYNC = "sync"
    ASYNC = "async"
    ASYNC_JIT = "async_jit"
    REMOTE = "remote"


def serialize(obj: Any) -> tuple[bytes, list[Any]]:
    """Return an object as a pickle with holes, and the tensors that belong into them."""
    stream, slots = pickler.dumps(obj, "the object")
    for each in slots:
        if isinstance(each, RRef) and each._worker.closed:
            raise NotInitialized(
                f"{each!r} belongs to a worker that has shut down. Cannot call fork an UserRRef "
                "after deletion."
            )
    return stream, slots


def deserialize(binary_data: bytes, tensor_table: list[Any]) -> Any:
    """Return the object again."""
    return pickler.loads(binary_data, tensor_table)


class _InternalRPCPickler:
    """``serialize`` and ``deserialize`` as methods."""

    serialize = staticmethod(serialize)
    deserialize = staticmethod(deserialize)


_internal_rpc_pickler = _InternalRPCPickler()
OTHER_PICKLERS: list[Any] = []
"""Those that ``_use_rpc_pickler`` names: calls are refused as long as there are any."""


def _build_rpc_profiling_key(
    exec_type: RPCExecMode, func_name: str, current_worker_name: str, dst_worker_name: str
) -> str:
    """Return what a call is named in a profile."""
    return f"rpc_{exec_type.value}#{func_name}({current_worker_name} -> {dst_worker_name})"
