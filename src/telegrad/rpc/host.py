"""A host: what a worker needs of the socket driver or the simulation that runs it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from telegrad.rpc.calls.future import Future
from telegrad.rpc.endpoint import Endpoint
from telegrad.rpc.names import WorkerInfo

if TYPE_CHECKING:
    from telegrad.rpc.worker import Worker


class Host(Protocol):
    """Time, threads and paths to peers."""

    memory: Callable[[int], memoryview]
    """Allocates the memory that large messages are received into; may be replaced."""

    def begin(self, worker: "Worker") -> str:
        """Start running the worker; return the address where others reach it, "" if none."""

    def now(self) -> float:
        """Return the time in seconds."""

    def dial(self, peer: WorkerInfo, address: str, timeout: float) -> Endpoint:
        """Open a path for this worker's requests; raise WorkerLost if the peer can't be reached."""

    def start(self, task: Callable[[], object]) -> bool:
        """Run the task on a thread of its own; if the host is closed, return False instead."""

    def serve(self, path: Endpoint, task: Callable[[], object]) -> None:
        """Run a request that came on the path, on a thread of its own, when it is its turn."""

    def wait(self, future: Future[Any], timeout: float | None) -> None:
        """Block this thread until the future is settled or the time is over."""

    def rouse(self, deadline: float) -> None:
        """Call the worker's timers no later than the deadline."""

    def ended(self, endpoint: Endpoint) -> None:
        """Free an endpoint that the worker has given up."""

    def tidy(self) -> None:
        """Free what could not be freed earlier."""

    def close(self, timeout: float) -> None:
        """End everything."""
