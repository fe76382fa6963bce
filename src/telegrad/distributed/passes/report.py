"""What an answer tells besides gradients: who took part, and how the number of waiting nodes
changed.

The changes of all workers add up to how many nodes wait where, so at rest the root knows it without
asking anyone.
"""

import msgspec


class Report(msgspec.Struct, eq=False):
    """The sum of what one request set off."""

    waiting: dict[str, int] = {}
    workers: dict[str, None] = {}
    """In the order in which they were met."""

    def change(self, worker: str, by: int) -> None:
        """Note that a worker took part, and that many more nodes wait there."""
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
        """Return the workers where some node waits."""
        return [worker for worker, count in self.waiting.items() if count] if self.waiting else []
