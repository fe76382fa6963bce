"""Tracebacks with the frames of the user's program only, and none of telegrad's.

Telegrad's frames are left out where a traceback is shown, by Python, by IPython or with a remote
error; the exception keeps them, for debuggers. ``TELEGRAD_TRACEBACK=full`` in the environment shows
all. All are also shown for what looks like a bug in telegrad: for an InternalError, and for any
exception raised in telegrad's own code that is not one of its public errors and not remote.
"""

import linecache
import os
import re
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from telegrad.errors import InternalError, TelegradError

VARIABLE: Final = "TELEGRAD_TRACEBACK"
REMOTE: Final = "raised on worker "
"""How the note of an error from another worker begins."""
_ROOT: Final = str(Path(__file__).parent) + os.sep
_PROGRAMS: Final = (f"{_ROOT}demo.py", f"{_ROOT}testing{os.sep}")
"""The parts of the package that are programs like the user's."""
_CALLERS: Final = ("_call", "_run_function", "call_method", "run_backward")
"""Our functions that call the user's, or PyTorch's engine: what such a frame raises is theirs."""
_FRAME = re.compile(r'^( *)File "([^"\n]+)", line (\d+), in .*$')


def told(error: BaseException) -> traceback.TracebackException:
    """Return the error's traceback as it should be shown."""
    made = traceback.TracebackException.from_exception(error)
    if not _shows_all():
        _leave_out(made, error)
    return made


@contextmanager
def shortened(error: BaseException) -> Iterator[None]:
    """Remove our frames from the error's tracebacks inside of the block."""
    chain = [] if _shows_all() else _chain(error)
    explained = {id(each.__cause__) for each in chain if _is_public(each)}
    whole = [(each, each.__traceback__, each.__context__) for each in chain]
    try:
        for each, trace, _ in whole:
            frames = list(_frames(trace))
            codes = [frame.tb_frame.f_code for frame in frames]
            if _is_for_users(each, codes, id(each) in explained):
                rest: TracebackType | None = None
                for frame in reversed(frames):
                    if not _is_ours(frame.tb_frame.f_code.co_filename):
                        rest = TracebackType(rest, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
                each.__traceback__ = rest
        for each, _, _ in whole:
            each.__context__ = own_context(each)
        yield
    finally:
        for each, trace, context in whole:
            each.__traceback__, each.__context__ = trace, context


def fill_lines(text: str) -> str:
    """Add source lines to another worker's traceback for code from this process's prompt."""
    lines = text.split("\n")
    filled: list[str] = []
    for line, after in zip(lines, [*lines[1:], ""]):
        filled.append(line)
        match = _FRAME.match(line)
        if match is None or after.startswith(f"{match[1]}  "):
            continue
        # Only code that is in no file: a peer must not have files shown.
        known = linecache.cache.get(match[2], ())
        if len(known) == 4 and known[1] is None:
            source = linecache.getline(match[2], int(match[3])).strip()
            if source:
                filled.append(f"{match[1]}  {source}")
    return "\n".join(filled)


def install() -> None:
    """Have uncaught errors shown without our frames, unless others have set a hook."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _show_of_thread
    shell = _ipython()
    if shell is not None and not shell.custom_exceptions:
        shell.set_custom_exc((BaseException,), _show_in_ipython)


def _shows_all() -> bool:
    return os.environ.get(VARIABLE) == "full"


def _is_ours(filename: str) -> bool:
    return filename.startswith(_ROOT) and not filename.startswith(_PROGRAMS)


def _is_public(error: BaseException) -> bool:
    return isinstance(error, TelegradError) and not isinstance(error, InternalError)


def _is_for_users(error: BaseException, codes: list[Any], is_explained: bool) -> bool:
    """Say whether our frames are of no use to a user.

    `is_explained`: whether it is the cause of one of our errors, which explains it to users.
    """
    if isinstance(error, InternalError):
        return False
    if is_explained:
        return True
    if not codes or not _is_ours(codes[-1].co_filename):
        return bool(codes)
    if _is_public(error) or isinstance(error, KeyboardInterrupt | SystemExit):
        return True
    is_remote = any(note.startswith(REMOTE) for note in getattr(error, "__notes__", ()))
    return is_remote or codes[-1].co_name in _CALLERS


def _frames(frame: TracebackType | None) -> Iterator[TracebackType]:
    while frame is not None:
        yield frame
        frame = frame.tb_next


def own_context(error: BaseException) -> BaseException | None:
    """Return the context of an error, without errors that we raised and handled ourselves."""
    context, seen = error.__context__, {id(error)}
    while context is not None and id(context) not in seen:
        frames = list(_frames(context.__traceback__))
        if context is error.__cause__ or not frames:
            break
        if not all(_is_ours(frame.tb_frame.f_code.co_filename) for frame in frames):
            break
        seen.add(id(context))
        context = context.__context__
    return context


def _chain(error: BaseException) -> list[BaseException]:
    """Return the error and all errors that are shown with it."""
    found, ahead = {}, [error]
    while ahead:
        each = ahead.pop()
        if id(each) not in found:
            found[id(each)] = each
            ahead += [more for more in (each.__cause__, each.__context__) if more is not None]
            ahead += getattr(each, "exceptions", ()) if isinstance(each, BaseExceptionGroup) else ()
    return list(found.values())


def _leave_out(
    made: traceback.TracebackException, error: BaseException, is_explained: bool = False
) -> None:
    codes = [frame.tb_frame.f_code for frame in _frames(error.__traceback__)]
    if _is_for_users(error, codes, is_explained):
        theirs = [frame for frame in made.stack if not _is_ours(frame.filename)]
        made.stack = traceback.StackSummary.from_list(theirs)
    if made.__cause__ is not None and error.__cause__ is not None:
        _leave_out(made.__cause__, error.__cause__, _is_public(error))
    context = error.__context__
    wanted = own_context(error)
    while made.__context__ is not None and context is not None and context is not wanted:
        made.__context__, context = made.__context__.__context__, context.__context__
    if made.__context__ is not None and context is not None and context is not error.__cause__:
        _leave_out(made.__context__, context)
    if isinstance(error, BaseExceptionGroup):
        for inner, one in zip(made.exceptions or (), error.exceptions):
            _leave_out(inner, one)


def _show(_: Any, error: BaseException, __: Any) -> None:
    with shortened(error):
        sys.__excepthook__(type(error), error, error.__traceback__)


def _show_of_thread(args: Any, /) -> None:
    error = args.exc_value
    if error is None:
        threading.__excepthook__(args)
        return
    with shortened(error):
        threading.__excepthook__(
            threading.ExceptHookArgs((args.exc_type, error, error.__traceback__, args.thread))
        )


def _ipython() -> Any:
    """Return the IPython shell that this process runs, if any."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()


def _show_in_ipython(
    shell: Any, kind: Any, error: BaseException, trace: Any, tb_offset: int | None = None
) -> None:
    with shortened(error):
        shell.showtraceback((kind, error, error.__traceback__), tb_offset=tb_offset)
