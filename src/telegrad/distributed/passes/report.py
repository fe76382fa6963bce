"""The report in an answer: the workers that took part, and the changes in their waiting nodes.

The changes add up to the number of waiting nodes on each worker, so at rest the root knows these
numbers without asking.
"""

import msgspec


class Report(msgspec.Struct, eq=False):
    """The sum over all work that one request caused."""

    waiting: dict[str, int] = {}
    workers: dict[str, None] = {}
    """The workers that took part, in the order in which they were met."""

    def change(self, worker: str, by: int) -> None:
        """Note that a worker took part, and that the number of its waiting nodes grew by `by`."""
        self.workers[worker] = None
        if by:
            self.waiting[worker] = self.waiting.get(worker, 0) + by

    def merge(self, waiting: dict[str, int], workers: list[str]) -> None:
        """Add the report of an answer."""
        for worker in workers:
            self.workers[worker] = None
        for worker, by in waiting.items():
            self.change(worker, by)

    def who_waits(self) -> list[str]:
        """Return the workers that have waiting nodes."""
        return [worker for worker, count in self.waiting.items() if count] if self.waiting else []
