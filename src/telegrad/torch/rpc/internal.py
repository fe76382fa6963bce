"""The names of ``torch.distributed.rpc.internal`` that programs use."""

import enum
from collections import namedtuple
from typing import Any

from telegrad.errors import NotInitialized
from telegrad.rpc.references.rref import RRef
from telegrad.rpc.wire import pickler

PythonUDF = namedtuple("PythonUDF", ["func", "args", "kwargs"])
"""A function and its arguments."""


class RPCExecMode(enum.Enum):
    """The ways to make a call."""

    SYNC = "sync"
    ASYNC = "async"
    ASYNC_JIT = "async_jit"
    REMOTE = "remote"


def serialize(obj: Any) -> tuple[bytes, list[Any]]:
    """Pickle an object; return the pickle, and the tensors, which are left out of it."""
    stream, slots = pickler.dumps(obj, "the object")
    for each in slots:
        if isinstance(each, RRef) and each._worker.closed:
            raise NotInitialized(
                f"{each!r} belongs to a worker that has shut down. Cannot call fork an UserRRef "
                "after deletion."
            )
    return stream, slots


def deserialize(binary_data: bytes, tensor_table: list[Any]) -> Any:
    """Undo `serialize`."""
    return pickler.loads(binary_data, tensor_table)


class _InternalRPCPickler:
    """``serialize`` and ``deserialize`` as methods."""

    serialize = staticmethod(serialize)
    deserialize = staticmethod(deserialize)


_internal_rpc_pickler = _InternalRPCPickler()
OTHER_PICKLERS: list[Any] = []
"""The picklers set by ``_use_rpc_pickler``; calls are refused while there are any."""


def _build_rpc_profiling_key(
    exec_type: RPCExecMode, func_name: str, current_worker_name: str, dst_worker_name: str
) -> str:
    """Return the name of a call in a profile."""
    return f"rpc_{exec_type.value}#{func_name}({current_worker_name} -> {dst_worker_name})"
