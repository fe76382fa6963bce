"""Drawing the same random numbers again: what a second run of a function needs.

While a function runs, ``Drawn`` notes the state that each stream had before the function first drew
from it. ``again`` then lends copies of those streams, so that a second run draws the same numbers
and the streams themselves stay where they are. Streams are identified by their generators; one that
the function itself has made is unknown in the second run, and is drawn from as it is.

All that counts about generators here is their identity. What other threads draw, those that the
function starts and those that share its streams, is not replayed.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

import numpy as np

Stream: TypeAlias = "np.random.Generator"

_LENDER: ContextVar[Callable[[Any, Stream], Stream] | None] = ContextVar(
    "telegrad.drawing", default=None
)


def stream_of(generator: Any, own: Stream) -> Stream:
    """Return the stream to draw from for `generator`, whose own one this is."""
    lend = _LENDER.get()
    return own if lend is None else lend(generator, own)


class Drawn:
    """The streams that one run of a function drew from, as they were before."""

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self._before: dict[Any, Any] = {}

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note streams inside; an enclosing ``noted`` or ``again`` has its part, too."""
        outer = _LENDER.get()

        def note(generator: Any, own: Stream) -> Stream:
            stream = own if outer is None else outer(generator, own)
            if generator not in self._before:
                self._before[generator] = copy.deepcopy(stream)
            return stream

        with _lending(note):
            yield

    @contextmanager
    def again(self) -> Iterator[None]:
        """Inside, the noted streams begin again where they were."""
        lent = {generator: copy.deepcopy(stream) for generator, stream in self._before.items()}
        with _lending(lambda generator, own: lent.get(generator, own)):
            yield


@contextmanager
def _lending(lender: Callable[[Any, Stream], Stream]) -> Iterator[None]:
    token = _LENDER.set(lender)
    try:
        yield
    finally:
        _LENDER.reset(token)
