"""A seam for watching what a worker calls, serves and waits for, and when.

Set as `worker.observer`; None, the default, costs one comparison at each of these points.
"""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from telegrad.rpc.calls.call import Call


class Observer(Protocol):
    """Called on the thread of the event; must be quick and must not fail."""

    def sent(self, call: "Call", size: int) -> None:
        """Note that a call or a service's message of `size` bytes is about to be sent."""

    def answered(self, call: "Call", size: int) -> None:
        """Note that a call was answered, or never will be.

        The latter may be reported more than once, and for a call that was never sent.
        """

    def handling(
        self, frm: str, number: int | None, what: Any, size: int
    ) -> AbstractContextManager[Any]:
        """Entered while a request is served; `number` is the sender's, None for a notice."""

    def waiting(self, call: "Call") -> AbstractContextManager[Any]:
        """Entered while a thread waits for a call."""

    def running(self, name: str, detail: int | None = None) -> AbstractContextManager[Any]:
        """Entered while a layer above does work that it has named."""
