"""The mode of recording: the one context variable that every operation reads.

Each thread and each async task has its own; a new thread starts with the default. Equal modes are
the same object, so the fast path is one identity check against PLAIN.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Self

import msgspec

from telegrad.tensors.recording.decorator import decorated


class Mode(msgspec.Struct, frozen=True):
    """How operations are recorded."""

    recording: bool = True
    inference: bool = False
    pack: tuple[Callable[[Any], Any], Callable[[Any], Any]] | None = None
    """(pack, unpack) for saved values; see ``autograd.graph.saved_tensors_hooks``."""
    anomaly: bool = False
    """Whether each node remembers the line that recorded it."""
    check_nan: bool = False
    """Whether a backward pass that starts here raises at the first NaN; ``detect_anomaly``."""


PLAIN = Mode()
"""The default: everything is recorded."""
QUIET = Mode(recording=False)
"""Under ``no_grad``, with nothing else switched on."""
MODE: ContextVar[Mode] = ContextVar("telegrad.mode", default=PLAIN)


def changed(mode: Mode, **changes: Any) -> Mode:
    """Return `mode` with some fields replaced; the common modes are shared objects."""
    new = msgspec.structs.replace(mode, **changes)
    return PLAIN if new == PLAIN else QUIET if new == QUIET else new


def recording(mode: Mode, is_on: bool) -> Mode:
    """Return `mode` with recording on or off."""
    if mode is PLAIN or mode is QUIET:
        return PLAIN if is_on else QUIET
    return changed(mode, recording=is_on)


class ModeScope:
    """Enters a mode and restores the one before; a context manager and a decorator."""

    __slots__ = ("_before", "_changes")

    def __init__(self, **changes: Any) -> None:
        self._changes = changes
        self._before: list[Mode] = []

    def fresh(self) -> Self:
        """Return the same scope, not yet entered: a decorated function may run in many threads."""
        twin = object.__new__(type(self))
        ModeScope.__init__(twin, **self._changes)
        return twin

    def _changed(self, mode: Mode) -> Mode:
        return changed(mode, **self._changes)

    def __enter__(self) -> Self:
        before = MODE.get()
        MODE.set(self._changed(before))
        self._before.append(before)
        return self

    def __exit__(self, *exception: object) -> None:
        # Not by a token: a generator may be closed in another context than it was started in.
        MODE.set(self._before.pop())

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` as one that runs in this mode; generators and async functions too."""
        return decorated(function, self.fresh)


class _Bare(ModeScope):
    """A scope that also decorates without parentheses: ``@no_grad``."""

    __slots__ = ()

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        return object.__new__(cls) if function is None else cls()(function)


class no_grad(_Bare):
    """Record nothing inside: results are constants, whatever went in.

    Examples:
        >>> x = tg.tensor([1.0], requires_grad=True)
        >>> with tg.no_grad():
        ...     print((x * 2).requires_grad)
        False
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(recording=False)

    def _changed(self, mode: Mode) -> Mode:
        return recording(mode, False)


class enable_grad(_Bare):
    """Record again inside of ``no_grad``; inside of ``inference_mode``, nothing changes.

    Examples:
        >>> x = tg.tensor([1.0], requires_grad=True)
        >>> with tg.no_grad(), tg.enable_grad():
        ...     print((x * 2).requires_grad)
        True
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(recording=True)

    def _changed(self, mode: Mode) -> Mode:
        return mode if mode.inference else super()._changed(mode)


class inference_mode(ModeScope):
    """Record nothing inside, and let nothing made there be made to require grad later.

    ``inference_mode(False)`` restores the ordinary mode, whatever is around it.

    Examples:
        >>> with tg.inference_mode():
        ...     y = tg.tensor([1.0]) * 2
        >>> y.requires_grad
        False
    """

    __slots__ = ()

    def __new__(cls, mode: bool | Callable[..., Any] = True) -> Any:
        return cls()(mode) if callable(mode) else object.__new__(cls)

    def __init__(self, mode: bool = True) -> None:
        super().__init__(recording=not mode, inference=bool(mode))


class Recording(ModeScope):
    """Recording on or off, even inside of ``inference_mode``: for passes and transforms."""

    __slots__ = ()

    def __init__(self, is_on: bool) -> None:
        super().__init__(recording=is_on, inference=False)

    def _changed(self, mode: Mode) -> Mode:
        if mode.inference:
            return super()._changed(mode)
        return recording(mode, self._changes["recording"])


class SetAtOnce(ModeScope):
    """A scope whose constructor already changes the mode; ``with`` restores it at the end."""

    __slots__ = ("_is_set",)

    def __init__(self, **changes: Any) -> None:
        super().__init__(**changes)
        super().__enter__()
        self._is_set = True

    def fresh(self) -> Self:
        twin = super().fresh()
        twin._is_set = False
        return twin

    def __enter__(self) -> Self:
        if self._is_set:
            self._is_set = False
            # Once more: another mode may have been entered since the constructor ran.
            MODE.set(self._changed(MODE.get()))
            return self
        return super().__enter__()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        # A decorator concerns only the function: undo what the constructor did.
        if self._is_set:
            self._is_set = False
            self.__exit__()
        return super().__call__(function)


class set_grad_enabled(SetAtOnce):
    """Turn recording on or off; inside of ``inference_mode``, nothing changes.

    Examples:
        >>> with tg.set_grad_enabled(False):
        ...     print(tg.is_grad_enabled())
        False
    """

    __slots__ = ()

    def __init__(self, mode: bool) -> None:
        super().__init__(recording=bool(mode))

    def _changed(self, mode: Mode) -> Mode:
        return mode if mode.inference else super()._changed(mode)


def is_grad_enabled() -> bool:
    """Say whether operations are recorded here and now.

    Examples:
        >>> tg.is_grad_enabled()
        True
    """
    return MODE.get().recording


def is_inference_mode_enabled() -> bool:
    """Say whether ``inference_mode`` is on here and now.

    Examples:
        >>> tg.is_inference_mode_enabled()
        False
    """
    return MODE.get().inference
