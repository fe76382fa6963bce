"""A failure that nobody has asked for yet: it is logged if its call goes before anybody does."""

import logging

from telegrad.errors import NotInitialized

_log = logging.getLogger("telegrad.rpc")


class Unheard:
    """Kept by a failed call alone, and so dropped with it."""

    __slots__ = ("_error", "_said")

    def __init__(self, said: str, error: BaseException) -> None:
        self._said = said
        # Its own worker's end is no failure of a call that the program left open.
        self._error = None if isinstance(error, NotInitialized) else error

    def hear(self) -> None:
        """Note that somebody knows."""
        self._error = None

    def __del__(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            _log.error("a call failed and nobody waited for it: %s", self._said, exc_info=error)
