"""Telegrad's errors as programs written for ``torch.distributed.rpc`` expect them.

PyTorch raises a RuntimeError with certain words for all that goes wrong between workers. So each
class below is both telegrad's error and a RuntimeError. An exception that a remote function raised
keeps its own type.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

from telegrad.errors import (
    CallTimeout,
    NotInitialized,
    PeerError,
    UnknownWorker,
    Unserializable,
    UsageError,
    WorkerLost,
)
from telegrad.rpc.wire.failures import RemoteFailure


class RpcTimeout(CallTimeout, RuntimeError):
    """A call that ran for more than its timeout."""


class RpcLost(WorkerLost, RuntimeError):
    """A call to a worker that died, stopped or left."""


class RpcFailed(PeerError, RuntimeError):
    """Any other failure of the other worker."""


class RpcUnknownWorker(UnknownWorker, RuntimeError):
    """A destination that is no worker of the cluster."""


class RpcUnserializable(Unserializable, RuntimeError):
    """A value that can't be sent."""


class RpcMisused(UsageError, RuntimeError):
    """A call that was made in a way that is not allowed."""


TRANSLATED: Final = (PeerError, UsageError)
"""The errors that ``as_torch`` may replace."""

_WORDS: tuple[tuple[type[Exception], type[Exception], str], ...] = (
    (CallTimeout, RpcTimeout, "RPC ran for more than set timeout: {}"),
    (WorkerLost, RpcLost, "{}"),
    (UnknownWorker, RpcUnknownWorker, "could not find destination: {}"),
    (Unserializable, RpcUnserializable, "{}"),
    (
        RemoteFailure,
        RemoteFailure,
        "Failed to create original exception type. Original exception on remote side was {}",
    ),
    (NotInitialized, NotInitialized, "RPC has not been initialized: {}"),
)


def as_torch(error: BaseException) -> BaseException:
    """Return the error itself, or its equivalent that is also a RuntimeError."""
    if not isinstance(error, TRANSLATED):
        return error
    for kind, made_as, words in _WORDS:
        if isinstance(error, kind):
            return error if type(error) is RpcTimeout else _like(error, made_as, words)
    if isinstance(error, RuntimeError):
        return error
    return _like(error, RpcMisused if isinstance(error, UsageError) else RpcFailed, "{}")


def _like(error: BaseException, kind: type[Exception], words: str) -> BaseException:
    text = str(error)
    start = words.partition("{}")[0]
    if type(error) is kind and text.startswith(start):
        return error
    made = kind(text if start and text.startswith(start) else words.format(text))
    made.__cause__ = error.__cause__
    for note in getattr(error, "__notes__", ()):
        made.add_note(note)
    return made


def raise_as_torch(error: BaseException) -> NoReturn:
    """Raise an error as ``as_torch`` returns it."""
    try:
        raise as_torch(error) from error.__cause__
    finally:
        # The traceback holds this frame, so a local that holds the error would be a cycle.
        del error


@contextmanager
def as_torch_raises() -> Iterator[None]:
    """Raise telegrad's errors that leave the block as RuntimeErrors, too."""
    try:
        yield
    except TRANSLATED as error:
        raise_as_torch(error)
