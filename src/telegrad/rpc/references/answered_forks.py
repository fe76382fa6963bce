"""The forks in answers that were sent: until each has arrived, or its answer is not wanted.

A fork in an answer counts at its parent until the other side says that it came. If the caller gave
up, the answer is thrown away unread there, and the forks in it are taken back here.
"""

from telegrad.rpc.endpoint import Endpoint

__all__ = ["AnsweredForks"]

Answer = tuple[Endpoint, int]
"""The path that an answer goes by, and the number of its request."""


class AnsweredForks:
    """Which forks are under way in which answer; its owner's lock is held."""

    def __init__(self) -> None:
        self._forks: dict[Answer, dict[int, None]] = {}
        # So that a message about a fork need not search for its answer.
        self._answer_of: dict[int, Answer] = {}

    def __len__(self) -> int:
        return len(self._answer_of)

    def add(self, answer: Answer, fork: int) -> None:
        """Note a fork that an answer carries."""
        self._forks.setdefault(answer, {})[fork] = None
        self._answer_of[fork] = answer

    def arrived(self, fork: int) -> None:
        """Forget a fork that is in, and its answer when all of its forks are."""
        answer = self._answer_of.pop(fork, None)
        if answer is not None:
            forks = self._forks[answer]
            del forks[fork]
            if not forks:
                del self._forks[answer]

    def forget(self, answer: Answer) -> list[int]:
        """Forget an answer; return its forks that have not arrived."""
        forks = list(self._forks.pop(answer, ()))
        for fork in forks:
            del self._answer_of[fork]
        return forks

    def forget_peer(self, name: str) -> None:
        """Forget all answers to a worker that was lost."""
        for answer in [each for each in self._forks if each[0].peer.name == name]:
            self.forget(answer)
