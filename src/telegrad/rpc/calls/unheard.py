"""A failure that no code has asked for yet; logged if its call is dropped before any does."""

import logging

from telegrad.errors import NotInitialized

_log = logging.getLogger("telegrad.rpc")


class Unheard:
    """Kept only by its failed call, and so dropped with it."""

    __slots__ = ("_error", "_said")

    def __init__(self, said: str, error: BaseException) -> None:
        self._said = said
        # Shutting down the caller's own worker is no failure of a call that was left open.
        self._error = None if isinstance(error, NotInitialized) else error

    def hear(self) -> None:
        """Note that the program has asked for the failure."""
        self._error = None

    def __del__(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            _log.error("a call failed and nobody waited for it: %s", self._said, exc_info=error)
