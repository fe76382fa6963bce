"""A call that came from another worker, while it is being served here."""

import contextvars
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from telegrad.rpc.endpoint import Endpoint
    from telegrad.rpc.worker import Worker

__all__ = ["Request", "current_request"]


class Request:
    """What the handler's own calls need to know.

    `can_nest`: a thread of the caller waits for this request and runs what comes back to it on
    its own stack, until the request has been answered.
    """

    __slots__ = ("can_nest", "endpoint", "number", "worker")

    def __init__(
        self, worker: "Worker", endpoint: "Endpoint | None", number: int, can_nest: bool
    ) -> None:
        self.worker = worker
        self.endpoint = endpoint
        self.number = number
        self.can_nest = can_nest


current_request: contextvars.ContextVar[Request | None] = contextvars.ContextVar(
    "telegrad_current_request", default=None
)
"""The request that the current thread or task serves; its worker is the current one."""
