"""What is recorded right now: the one context variable that every operation reads.

Per thread and per async task; a new thread starts with the default. Equal modes are the same object,
so the hot path is one identity check against PLAIN.
"""

from collections.abc import Callable
from contextlib import ContextDecorator
from contextvars import ContextVar, Token
from typing import Any

import msgspec

__all__ = [
    "MODE",
    "PLAIN",
    "Mode",
    "ModeScope",
    "enable_grad",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "set_grad_enabled",
]


class Mode(msgspec.Struct, frozen=True):
    """How operations are recorded."""

    recording: bool = True
    inference: bool = False
    pack: tuple[Callable[[Any], Any], Callable[[Any], Any]] | None = None
    """(pack, unpack) for saved values; see ``autograd.graph.saved_tensors_hooks``."""
    anomaly: bool = False
    """Whether each node remembers the line that recorded it."""
    check_nan: bool = False


PLAIN = Mode()
_QUIET = Mode(recording=False)
MODE: ContextVar[Mode] = ContextVar("telegrad.mode", default=PLAIN)


def changed(mode: Mode, **changes: Any) -> Mode:
    """`mode` with some fields replaced; the common modes are shared objects."""
    new = msgspec.structs.replace(mode, **changes)
    return PLAIN if new == PLAIN else _QUIET if new == _QUIET else new


class ModeScope(ContextDecorator):
    """Enters a mode and restores what was before; a context manager and a decorator."""

    __slots__ = ("_changes", "_tokens")

    def __init__(self, **changes: Any) -> None:
        self._changes = changes
        self._tokens: list[Token[Mode]] = []

    def _recreate_cm(self) -> "ModeScope":
        # A decorated function may run in many threads at once: each call gets a scope of its own.
        fresh = ModeScope(**self._changes)
        return fresh

    def __enter__(self) -> "ModeScope":
        self._tokens.append(MODE.set(changed(MODE.get(), **self._changes)))
        return self

    def __exit__(self, *exception: object) -> None:
        MODE.reset(self._tokens.pop())


class no_grad(ModeScope):
    """Records nothing inside: results are constants, whatever went in."""

    def __init__(self) -> None:
        super().__init__(recording=False)


class enable_grad(ModeScope):
    """Records again inside of ``no_grad``."""

    def __init__(self) -> None:
        super().__init__(recording=True, inference=False)


class inference_mode(ModeScope):
    """Like ``no_grad``, and what is made inside can't be made to require grad later."""

    def __init__(self, mode: bool = True) -> None:
        super().__init__(**({"recording": False, "inference": True} if mode else {}))


class set_grad_enabled(ModeScope):
    """Turns recording on or off, at once, and back again when used in ``with``."""

    def __init__(self, mode: bool) -> None:
        super().__init__(recording=bool(mode))
        self._tokens.append(MODE.set(changed(MODE.get(), recording=bool(mode))))

    def __enter__(self) -> "set_grad_enabled":
        return self


def is_grad_enabled() -> bool:
    """Whether operations are recorded here and now."""
    return MODE.get().recording


def is_inference_mode_enabled() -> bool:
    """Whether ``inference_mode`` is on here and now."""
    return MODE.get().inference
