"""Termination detection: the workers of a cluster may leave once none has or can get work.

1. A worker whose program has ended and that is quiet (no call open, none being served) reports to
   rank 0, with the number of calls that it has served so far.
2. When all have reported, or are lost, the round is over. That is not the end yet: a worker may
   have been called after its report, and have called others, before its caller reported.
3. If the numbers are those of the round before, all may leave. Otherwise everyone reports again.

Why that suffices: a busy worker was called by a busy one, and so on back to one whose program still
runs, but no program does. A worker with the same number in two reports served nothing between them,
and the end of the first round lies between the two reports of each. So at that moment no worker was
busy.

Pure state; the caller serialises.
"""

from typing import Any, NamedTuple


class Round(NamedTuple):
    """The end of a round: whether all may leave, and the tokens of the reports."""

    is_last: bool
    tokens: list[Any]


class TerminationDetector:
    """Rank 0's count of the workers that want to leave."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._served: dict[str, int] = {}
        self.tokens: list[Any] = []
        """The tokens of this round's reports: callers get them back with the round."""
        self.gone: dict[str, None] = {}
        """The workers that will report no more."""
        self._before: dict[str, int] | None = None

    def report(self, name: str, served: int, token: Any) -> Round | None:
        """Note that a worker is quiet after `served` calls; return the round if it is over."""
        self._served[name] = served
        self.tokens.append(token)
        return self._end()

    def lost(self, name: str) -> Round | None:
        """Note that a worker will report no more; return the round if it is over."""
        self.gone[name] = None
        return self._end()

    def returned(self, name: str) -> None:
        """Note that a worker that was lost is back."""
        self.gone.pop(name, None)

    def _end(self) -> Round | None:
        if len(self._served.keys() | self.gone.keys()) < self._size or not self.tokens:
            return None
        ended = Round(self._served == self._before, self.tokens)
        self._before, self._served, self.tokens = self._served, {}, []
        return ended
