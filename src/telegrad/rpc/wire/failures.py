"""A remote exception as bytes, and back: its own type, message, traceback and worker.

An exception that can't be pickled, or whose type is unknown here, becomes a RemoteFailure that
says what it was; so does one that would end this program (SystemExit, KeyboardInterrupt), for which
it was not raised. Strict workers rebuild only Python's own exceptions and telegrad's.
"""

import builtins
import pickle
from typing import Any, Final

import msgspec

from telegrad import errors, tracebacks
from telegrad.errors import PeerError, ProtocolViolation
from telegrad.rpc.wire import pickler
from telegrad.rpc.wire.script import NO_NAMES, Names

# A failure is sent in a header, whose size is bounded, and it must get through.
_MOST_PICKLED: Final = 8 << 20
_LONGEST_TEXT: Final = 1 << 20


class RemoteFailure(PeerError, RuntimeError):
    """An exception of another worker whose own type is not available here."""


def as_exception(error: BaseException) -> Exception:
    """Return the error of a function run for a peer, as one that can't end the program."""
    if isinstance(error, Exception):
        return error
    made = RemoteFailure(f"{type(error).__qualname__}: {_text(error)}")
    made.__cause__ = error
    return made


class _Failure(msgspec.Struct, array_like=True):
    module: str
    name: str
    message: str
    worker: str
    trace: str
    stream: bytes | None
    notes: str


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Failure).decode


def dump_failure(
    error: BaseException, worker: str, *, strict: bool, script: Names = NO_NAMES
) -> bytes:
    """Return the bytes of an exception that was raised on `worker`."""
    type_ = type(error)
    stream = None
    if not strict and isinstance(error, Exception):
        try:
            stream, slots = pickler.dumps(error, "the exception", script)
            # An exception whose arguments don't fit its constructor can be pickled but not loaded.
            if slots or len(stream) > _MOST_PICKLED or type(pickle.loads(stream)) is not type_:
                stream = None
        except BaseException:
            # Even SystemExit and the like, as in a served function: the call must be answered.
            stream = None
    message = _fit(_text(error))
    trace, notes = _told(error)
    # A class may have any object there; a peer accepts only text.
    module, name = _fit(str(type_.__module__)), _fit(type_.__qualname__)
    return _encode(_Failure(module, name, message, worker, trace, stream, notes))


def _told(error: BaseException) -> tuple[str, str]:
    """Return the traceback, and the exception's own notes, perhaps of workers further on.

    A pickle keeps the notes. If the traceback, which becomes the next note, had them too, they
    would double with each call that the failure passes on its way back.
    """
    try:
        told = tracebacks.told(error)
        notes, told.__notes__ = getattr(error, "__notes__", None) or (), None
        return _fit("".join(told.format())), _fit("\n".join(map(str, notes)))
    except BaseException as broken:
        # Answer all the same: the caller waits.
        return f"<it can't be had: {type(broken).__qualname__}>\n", ""


def _fit(text: str) -> str:
    """Return the text in a form that can be sent: bounded, and without lone surrogates."""
    if len(text) > _LONGEST_TEXT:
        half = _LONGEST_TEXT // 2
        text = f"{text[:half]} ... ({len(text) - 2 * half} characters left out) ... {text[-half:]}"
    return text.encode("utf-8", "backslashreplace").decode()


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:
        return f"<its text can't be had: {type(broken).__qualname__}>"


def load_failure(header: bytes | bytearray, *, strict: bool) -> BaseException:
    """Return the exception, with a note that holds the worker's name and the remote traceback."""
    try:
        failure = _decode(header)
    except (msgspec.MsgspecError, UnicodeDecodeError) as malformed:
        raise ProtocolViolation(f"a malformed failure came: {malformed}") from malformed
    trace = tracebacks.fill_lines(failure.trace)
    told = f"{tracebacks.REMOTE}{failure.worker!r}; the traceback there:\n{trace}"
    error = _rebuild(failure, strict)
    try:
        # An exception that was not rebuilt from its pickle has lost its notes.
        error.add_note(told if getattr(error, "__notes__", None) else told + failure.notes)
    except Exception:
        error = _stand_in(failure)
        error.add_note(told + failure.notes)
    return error


def _rebuild(failure: _Failure, strict: bool) -> BaseException:
    if failure.stream is not None and not strict:
        try:
            error = pickler.loads(failure.stream, [])
            if isinstance(error, Exception):
                return error
        except Exception:
            pass
    if (failure.module, failure.name) == (__name__, RemoteFailure.__name__):
        # Its message says already what it was.
        return RemoteFailure(failure.message)
    found: Any = None
    if failure.module == "builtins":
        found = getattr(builtins, failure.name, None)
    elif failure.module == errors.__name__ and failure.name in errors.__all__:
        found = getattr(errors, failure.name)
    if isinstance(found, type) and issubclass(found, Exception):
        try:
            return found(failure.message)
        except Exception:
            pass
    return _stand_in(failure)


def _stand_in(failure: _Failure) -> RemoteFailure:
    module = "" if failure.module == "builtins" else f"{failure.module}."
    return RemoteFailure(f"{module}{failure.name}: {failure.message}")
