"""End a context on all workers: contexts are leases.

The home releases a context with notices. Every worker forwards them to the workers that it knows in
the context, except those that the home notifies itself: each of these gets the notice or loses the
home. If another worker releases the context, all that hear of it notify the home, too.

A worker that loses the home drops the contexts that the home introduced over the lost connection,
and tells the others that it knows in each to ask the home themselves: a worker that was frozen has
lost all others, though they live. A worker is in doubt if it loses the home of a context that
another introduced, or the introducer, through which the home's notice would come. It then makes
itself known to the home, and drops the context if the home can't be reached or has released it.

A loss concerns one connection: contexts that came over a later one stay. So a home that was frozen
may still have a context that others have dropped: before it shows gradients it asks them.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec

from telegrad.distributed.contexts.context import Context, Contexts, gone_on
from telegrad.distributed.notices import forward, notify, reachable
from telegrad.errors import PeerError, UnknownWorker
from telegrad.rpc.calls.service import ServiceRequest
from telegrad.rpc.names import WorkerInfo, maker_of
from telegrad.rpc.wire.conversion import converter
from telegrad.rpc.worker import Worker

RELEASE: Final = "autograd.release"
HELD: Final = "autograd.lease_held"
HOME_LOST: Final = "autograd.home_lost"
FORSAKEN: Final = "autograd.forsaken"


class _Release(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    context_id: int
    notified: list[str]
    """The workers that the home notifies itself."""
    committed: int = 0
    """Its last committed pass, which receivers may not have heard of; 0: none."""


_as_release = converter(_Release)
_as_id = converter(int)


class Leases:
    """The leases of one worker's contexts."""

    def __init__(self, worker: Worker, contexts: Contexts) -> None:
        self._worker = worker
        self._contexts = contexts
        worker.register_service(RELEASE, self._on_release, inline=True)
        worker.register_service(HELD, self._on_held, inline=True)
        worker.register_service(HOME_LOST, self._on_home_lost, inline=True)
        worker.register_service(FORSAKEN, self._on_forsaken, inline=True)
        worker.on_worker_lost(self._on_lost)

    def release(
        self,
        context_id: int,
        heard_from: str | None = None,
        notified: Iterable[str] = (),
        committed: int = 0,
    ) -> None:
        """Forget a context here and on every worker that it reached from here.

        `notified` are the home and the workers that it notifies itself; empty if another worker
        released the context. `committed` is passed on: see ``_Release``.
        """
        context = self._contexts.drop(context_id, committed=committed)
        if context is None:
            return
        worker = self._worker
        if context.late is not None:
            # Another thread may still send that notice, late: this one carries the commit, too.
            committed = context.late.take()[1]
        others = context.known_but(worker.name, heard_from, *notified)
        if context.home_id == worker.id:
            notified = [worker.name, *[name for name in others if reachable(worker, name)]]
        elif not notified:
            # The worker that released it may have died before it notified the home.
            forward(worker, context.home_id, RELEASE, [context_id, []])
        for name in others:
            forward(worker, name, RELEASE, [context_id, notified, committed], rides=True)

    def _on_release(self, request: ServiceRequest) -> None:
        release = _as_release(request.header)
        context_id, committed = release.context_id, release.committed
        context = self._contexts.find(context_id)
        local_pass = context.passes.get(committed) if committed and context else None
        try:
            self.release(context_id, request.frm.name, release.notified, committed)
            if local_pass is not None:
                # Its gradients are gone with the context, but `retain_grad` values keep theirs.
                local_pass.commit()
        except BaseException:
            if local_pass is not None:
                local_pass.abort()
            raise
        finally:
            if context is not None:
                # Break the cycle between context and pass.
                context.passes.pop(committed, None)

    def _on_lost(self, who: WorkerInfo, error: BaseException) -> Callable[[], None]:
        gone: list[int] = []
        in_doubt: list[int] = []
        for context in self._contexts.all():
            if context.known.pop(who.name, None) and context.home_id == self._worker.id:
                context.doubtful[who.name] = None
            if context.introduced_by == who.name:
                (gone if context.home_id == who.id else in_doubt).append(context.id)
            elif context.home_id == who.id:
                in_doubt.append(context.id)

        def act() -> None:
            for context_id in gone:
                self._drop_lost(context_id, str(error))
            for context_id in in_doubt:
                self.verify(context_id)

        return act

    def _drop_lost(self, context_id: int, why: str) -> None:
        """Forget a context whose home was lost here, and tell the others to ask the home."""
        context = self._contexts.drop(
            context_id, f"worker {self._worker.name!r} lost its home ({why})"
        )
        if context is not None:
            for name in context.known_but(self._worker.name):
                forward(self._worker, name, HOME_LOST, context_id)

    def _on_home_lost(self, request: ServiceRequest) -> None:
        context_id = _as_id(request.header)
        if self._contexts.find(context_id) is not None:
            self.verify(context_id)

    def verify(self, context_id: int) -> None:
        """Make this worker known to the home; drop the context if the home has dropped it."""
        if maker_of(context_id) != self._worker.id:
            self._worker.host.start(partial(self._ask_home, context_id))

    def _ask_home(self, context_id: int) -> None:
        home = maker_of(context_id)
        if not notify(self._worker, home, HELD, context_id, dials_lost=True):
            # The home is gone, so no release notice would ever come.
            self._drop_lost(context_id, "it can't be reached")

    def _on_held(self, request: ServiceRequest) -> None:
        context = self._contexts.find(_as_id(request.header))
        if context is None:
            name = self._worker.name
            forward(self._worker, request.frm.name, RELEASE, [request.header, [name]])
        else:
            context.meet(request.frm)

    def check(self, context: Context) -> None:
        """At the context's home: raise if other workers took this one for lost and dropped it."""
        worker = self._worker
        if context.home_id != worker.id:
            return
        for name in [*context.doubtful, *filter(self._was_left_alone, list(context.known))]:
            # Asked twice: the first request may only find that the old connection has ended.
            why = self._ask_forsaken(name, context.id) or self._ask_forsaken(name, context.id)
            if why is not None and why[0] is not None:
                raise gone_on(name, context.id, str(why[0]))
            # If it did not answer, it is gone or cut off, and its gradients with it.
            context.doubtful.pop(name, None)

    def _ask_forsaken(self, name: str, context_id: int) -> tuple[Any, Any] | None:
        """Ask a worker which loss ended a context there, if any; None if it does not answer."""
        patience = self._worker.options.lost_after
        with suppress(PeerError, UnknownWorker):
            answer: tuple[Any, Any] = self._worker.ask_service(
                name, FORSAKEN, context_id, timeout=patience
            )
            return answer
        return None

    def _was_left_alone(self, name: str) -> bool:
        """Tell whether this process paused for so long that a worker may have taken it for lost."""
        peer = self._worker.peers.get(name)
        since = self._worker.host.now() - self._worker.options.lost_after / 2
        slept = False
        for path in [] if peer is None else peer.connections():
            slept = slept or path.liveness.slept or path.liveness.ticked < since
            # The worker is asked now, so reset it.
            path.liveness.slept = False
        return slept

    def _on_forsaken(self, request: ServiceRequest) -> None:
        request.reply(self._contexts.loss_of(_as_id(request.header)))
