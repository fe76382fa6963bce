"""How a layer above takes part in every call: in what is sent and received, on both sides.

Each worker has at most one interceptor, set with `worker.install`. `values` is the list of slots:
every array, registered kind, reference and raw buffer that the serialiser met in the arguments or
the result, in a fixed order, anywhere in the object graph. Items may be replaced in place: when
sending, before they are serialised; when receiving, before the object that holds them is built.

`extra` is anything that msgpack can encode; it is sent in the frame's header; None costs a byte.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from telegrad.rpc.names import WorkerInfo

if TYPE_CHECKING:
    from telegrad.rpc.references.rref import RRef


class Interceptor(Protocol):
    """The four hooks in the order in which one call passes them; then failures, derivatives."""

    def outgoing_call(self, to: WorkerInfo, values: list[Any]) -> Any:
        """On the caller, in the calling thread. Return the call's extra."""

    def incoming_call(
        self, frm: WorkerInfo, extra: Any, values: list[Any]
    ) -> AbstractContextManager[Any] | None:
        """On the callee, before the function runs; return a context for the function, if any.

        Called in the handler's context: the handler sees the context variables that this sets.
        """

    def outgoing_result(self, to: WorkerInfo, values: list[Any]) -> Any:
        """On the callee, inside that context, too. Return the result's extra.

        Not called where there is nothing to add: the result is None, and the call had no extra.
        """

    def incoming_result(
        self, frm: WorkerInfo, call_extra: Any, extra: Any, values: list[Any]
    ) -> Callable[[], None] | None:
        """On the caller, on the thread that reads: given both extras, adopt the values.

        Return a function that every thread taking the result must call first, or None.
        """

    def failed_call(self, to: WorkerInfo, call_extra: Any, error: BaseException) -> None:
        """On the caller: the call ended without a result."""

    def backward_from(self, reference: "RRef", context_id: int, retain_graph: bool) -> None:
        """Run a backward pass from the reference's value, at its owner; -1 means no context."""
