"""The end of a context, everywhere: contexts are leases.

The home releases a context by notices that every worker passes on to those it knows in that
context, but for those that the home tells itself: each of them hears of it, or loses the home.
Where another worker releases it, all who hear of that tell the home as well.
Losing the home releases its contexts. Losing the worker that introduced a context breaks
the way that the home's notice would come, so the home is then told directly who else has it.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

from msgspec import convert

from telegrad.distributed.contexts.context import Contexts
from telegrad.distributed.notices import forward, notify, reachable
from telegrad.rpc.calls.service import ServiceRequest
from telegrad.rpc.names import WorkerInfo, maker_of
from telegrad.rpc.worker import Worker

__all__ = ["Leases"]

RELEASE: Final = "autograd.release"
HELD: Final = "autograd.held"
_Released = tuple[int, list[str]]
"""A notice: the context, and the workers that hear of its end from the home."""
RELEASED: Final = (
    "was under way when the context was released; leave the `with context()` block after the "
    "backward pass (or its home, the worker that opened it, was lost)"
)


class Leases:
    """Releases one worker's contexts."""

    def __init__(self, worker: Worker, contexts: Contexts) -> None:
        self._worker = worker
        self._contexts = contexts
        worker.register_service(RELEASE, self._on_release, inline=True)
        worker.register_service(HELD, self._on_held, inline=True)
        worker.on_worker_lost(self._on_lost)

    def release(
        self, context_id: int, heard_from: str | None = None, told: Iterable[str] = ()
    ) -> None:
        """Forgets a context here and on every worker it reached from here.

        `told` are the home and those that it tells itself; none if it was not the home.
        """
        context = self._contexts.drop(context_id)
        if context is None:
            return
        with context.lock:
            # A local pass that is made later sees under this lock that it is released.
            passes = list(context.passes.values())
        for local_pass in passes:
            local_pass.abort(RELEASED)
        worker = self._worker
        heard = (worker.name, heard_from, *told)
        # A copy in one step: handlers of this context may still meet others.
        others = [name for name in list(context.known) if name not in heard]
        if context.home_id == worker.id:
            told = [worker.name, *[name for name in others if reachable(worker, name) is not None]]
        elif not told:
            # Whoever released it may have died before it told the home.
            forward(worker, context.home_id, RELEASE, [context_id, []])
        for name in others:
            forward(worker, name, RELEASE, [context_id, told])

    def _on_release(self, request: ServiceRequest) -> None:
        context_id, told = convert(request.header, _Released)
        self.release(context_id, request.frm.name, told)

    def _on_lost(self, who: WorkerInfo, error: BaseException) -> None:
        for context in self._contexts.all():
            if context.home_id == who.id:
                self.release(context.id, told=[who.name])
                continue
            context.known.pop(who.name, None)
            if context.introduced_by == who.name:
                self.verify(context.id)

    def verify(self, context_id: int) -> None:
        """Makes this worker known to the home, if that still has the context; else releases it."""
        if maker_of(context_id) != self._worker.id:
            self._worker.host.start(partial(self._tell_home, context_id))

    def _tell_home(self, context_id: int) -> None:
        if not notify(self._worker, maker_of(context_id), HELD, context_id):
            # The home is gone as well, and nobody else would tell.
            self.release(context_id)

    def _on_held(self, request: ServiceRequest) -> None:
        context = self._contexts.find(convert(request.header, int))
        if context is None:
            name = self._worker.name
            forward(self._worker, request.frm.name, RELEASE, [request.header, [name]])
        else:
            context.meet(request.frm)
