"""Errors as programs written for ``torch.distributed.rpc`` expect them.

There, what goes wrong between workers is a RuntimeError with certain words in it. Here it is also
what telegrad calls it: each class below is both. An exception that a remote function raised keeps
its own type.
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
    """Another failure of the other side."""


class RpcUnknownWorker(UnknownWorker, RuntimeError):
    """A destination that is not part of the cluster."""


class RpcUnserializable(Unserializable, RuntimeError):
    """A value that can't be sent."""


class RpcMisused(UsageError, RuntimeError):
    """A call that can't be served as it was made."""


TRANSLATED: Final = (PeerError, UsageError)
"""What ``as_torch`` may make something else of."""

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
    """Return the error itself, or one of the same meaning that is a RuntimeError too."""
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
    """Raise what ``as_torch`` makes of an error."""
    try:
        raise as_torch(error) from error.__cause__
    finally:
        # The traceback holds this frame: what it names must not lead back to the error.
        del error


@contextmanager
def as_torch_raises() -> Iterator[None]:
    """Make errors of telegrad that leave the block RuntimeErrors too."""
    try:
        yield
    except TRANSLATED as error:
        raise_as_torch(error)
