"""A call that came from another worker, while it is being served here."""

import contextvars
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from telegrad.rpc.endpoint import Endpoint
    from telegrad.rpc.worker import Worker


class Request(msgspec.Struct, eq=False):
    """The facts about a request that its handler's own calls need.

    `can_nest`: a thread of the caller waits for this request, and runs calls back to the caller on
    its own stack, until the request has been answered.
    """

    worker: "Worker"
    endpoint: "Endpoint | None"
    number: int
    can_nest: bool


current_request: contextvars.ContextVar[Request | None] = contextvars.ContextVar(
    "telegrad_current_request", default=None
)
"""The request that the current thread or task serves; its worker is the current one."""
