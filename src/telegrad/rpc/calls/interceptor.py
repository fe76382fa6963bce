"""How a layer above takes part in every call: what goes out and what comes in, on both sides.

One object for each worker, set with `worker.install`. `values` is the list of slots: every array,
registered kind, reference and raw buffer that the serialiser met in the arguments or the result,
in a fixed order, wherever in the object graph. Items may be replaced in place: going out, before
they are taken apart; coming in, before the object that holds them is built.

`extra` is anything that msgpack holds; it rides in the frame's header, and None costs a byte.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from telegrad.rpc.names import WorkerInfo

if TYPE_CHECKING:
    from telegrad.rpc.references.rref import RRef


class Interceptor(Protocol):
    """The four points, in the order in which one call passes them; its failure; derivatives."""

    def outgoing_call(self, to: WorkerInfo, values: list[Any]) -> Any:
        """On the caller, in the calling thread. Return the call's extra."""

    def incoming_call(
        self, frm: WorkerInfo, extra: Any, values: list[Any]
    ) -> AbstractContextManager[Any] | None:
        """On the callee, before the function runs, inside the context that is returned, if any.

        Called with the contextvars of the handler: what it sets there, the handler finds.
        """

    def outgoing_result(self, to: WorkerInfo, values: list[Any]) -> Any:
        """On the callee, inside that context too. Return the result's extra.

        Not asked where there is nothing to be said: the result is None, and the call had no extra.
        """

    def incoming_result(
        self, frm: WorkerInfo, call_extra: Any, extra: Any, values: list[Any]
    ) -> Callable[[], None] | None:
        """On the caller, on whichever thread reads: given both extras, adopt the values.

        Return what every thread that takes the result has to call first; None for nothing.
        """

    def failed_call(self, to: WorkerInfo, call_extra: Any, error: BaseException) -> None:
        """On the caller: the call ended without a result."""

    def backward_from(self, reference: "RRef", context_id: int, retain_graph: bool) -> None:
        """Run a backward pass from the value, where it is; -1 stands for no context."""
