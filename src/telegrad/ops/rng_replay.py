"""Drawing the same random numbers again: what a second run of a function needs.

``Drawn`` notes, while a function runs, how each stream was before the function first drew from it.
``again`` then lends copies of those streams, so a second run draws the same numbers and the streams
themselves stay where they are. Streams are told apart by their generator; one that was made by the
function itself is unknown the second time and is drawn from as it is.

Knows nothing of generators but that they are different objects. Threads that the function starts
draw for themselves, and so do others that share its streams while it runs.
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
        """Note streams inside; those who noted or lent before do so too."""
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
