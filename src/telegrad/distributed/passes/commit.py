"""Atomic commitment of a pass: all workers that took part keep its gradients, or none does.

The root decides between commit and abort, and notifies all workers. If it dies or can't reach some
worker, the home of the context stands in for it; a context does not outlive its home:

1. The root notifies the home of a commit before all others, and waits for its answer. So if any
   other worker knows of a commit, the home does, too, unless the network separates it from the root
   (``_notify_others``, ``_home_has_heard``).
2. A worker that loses another while a local pass is in doubt asks the home; the home itself asks
   the root. The home answers once it knows the outcome: from the root, from a worker that the root
   had notified, or, once the root is lost, by aborting the pass itself (``_on_lost``,
   ``_ask_home``, ``_on_in_doubt``, ``_ask_root``, ``_abort_orphan``).
3. A worker that loses the root of a committed pass, or hears of a commit from any worker but the
   root, forwards the commit. Every worker that hears of an abort forwards it (``_forward``).
4. A worker that hears of both, or can't keep a commit's gradients, releases the context and has the
   home release it: then no worker has gradients of it (``_on_outcome``).

If the root is the home, none of this is needed, and the notice of a commit may be sent later: no
other worker decides, and requests after the commit are sent in later frames.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from telegrad.distributed.contexts.context import ENCLOSING_PASSES, Context, Contexts
from telegrad.distributed.contexts.leases import Leases
from telegrad.distributed.notices import LateNotice, forward, notify
from telegrad.distributed.passes.local_pass import LocalPass
from telegrad.errors import WorkerLost
from telegrad.rpc.calls.service import ServiceRequest
from telegrad.rpc.names import WorkerInfo, maker_of
from telegrad.rpc.wire.conversion import converter
from telegrad.rpc.worker import Worker

OUTCOME: Final = "autograd.outcome"
IN_DOUBT: Final = "autograd.in_doubt"


# The contents of the two messages. Checked, since an id of another type would make `_on_lost` fail.
# Structs, since a tuple's type would be parsed for each message.
class _Outcome(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    context_id: int
    pass_id: int
    committed: bool
    missed: list[str | int]
    """The workers that have not heard of it; the home may be given by its id."""


class _InDoubt(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    context_id: int
    pass_id: int


_as_outcome = converter(_Outcome)
_as_question = converter(_InDoubt)


class PassCommit:
    """One worker's part in the protocol."""

    def __init__(self, worker: Worker, contexts: Contexts, leases: Leases) -> None:
        self._worker = worker
        self._contexts = contexts
        self._leases = leases
        worker.register_service(OUTCOME, self._on_outcome, inline=True)
        worker.register_service(IN_DOUBT, self._on_in_doubt, inline=True)
        worker.on_worker_lost(self._on_lost)

    def commit(self, context: Context, pass_id: int, names: Iterable[str]) -> None:
        """Make the gradients visible here and on the workers that took part; called at the root."""
        try:
            self._end_here(context, pass_id, True)
        except BaseException:
            # No worker has been notified of a commit yet, so the pass can still abort.
            self._notify_others(context, pass_id, context.known, False)
            raise
        self._notify_others(context, pass_id, names, True)

    def abort(self, context: Context, pass_id: int) -> None:
        """Drop the staged gradients on all workers; called at the root."""
        self._end_here(context, pass_id, False)
        self._notify_others(context, pass_id, context.known, False)

    def _notify_others(
        self, context: Context, pass_id: int, names: Iterable[str], committed: bool
    ) -> None:
        worker = self._worker
        # Listed only now: a worker that makes itself known later gets an answer from `outcomes`.
        met = dict.fromkeys(names)
        met.pop(worker.name, None)
        notice = [context.id, pass_id, committed, []]
        if context.home_id == worker.id:
            if committed and met and context.known.keys() >= met.keys():
                # It leaves before any request for gradients. Workers lost by then drop the context.
                late = LateNotice(worker, [*met], OUTCOME, notice)
                with context.lock:
                    before, context.late = context.late, late
                if before is not None:
                    before.flush()
                worker.outgoing.ride(late)
            else:
                self._notify_each([*met], notice)
            return
        others = [name for name in met if not context.is_home(name)]
        is_heard = False
        try:
            is_heard = committed and self._home_has_heard(context, notice)
        finally:
            # Also after Ctrl-C, since this worker has kept its gradients.
            self._notify_each(others if is_heard else [context.home_id, *others], notice)

    def _home_has_heard(self, context: Context, notice: list[Any]) -> bool:
        """Notify the home of the outcome and wait; return whether its answer came."""
        try:
            if self._worker.find(context.home_id).lost is None:
                self._worker.ask_service(context.home_id, OUTCOME, notice)
                return True
        except Exception:
            # The home is lost or cut off: it may hear of the outcome from the others.
            pass
        return False

    def _notify_each(self, others: Sequence[str | int], notice: list[Any]) -> None:
        context_id, pass_id, committed, _ = notice
        worker = self._worker
        missed = [to for to in others if not notify(worker, to, OUTCOME, notice, rides=committed)]
        if missed and committed:
            # These took part, so another worker that did can reach them, or has lost them.
            for to in others:
                if to not in missed:
                    notify(self._worker, to, OUTCOME, [context_id, pass_id, True, missed])

    def _end_here(self, context: Context, pass_id: int, committed: bool) -> bool:
        """End a local pass, which is in ``ENCLOSING_PASSES``; return False if it had ended."""
        with context.lock:
            if pass_id in context.outcomes:
                return False
            context.outcomes[pass_id] = committed
            local_pass: LocalPass | None = context.passes.get(pass_id)
        if local_pass is not None:
            try:
                if committed:
                    local_pass.commit()
                else:
                    local_pass.abort()
            except BaseException:
                # Nothing was kept. Perhaps there was no memory for the sums.
                context.outcomes[pass_id] = False
                local_pass.abort()
                raise
            finally:
                context.passes.pop(pass_id, None)
        return True

    def _end_elsewhere(self, context: Context, pass_id: int, committed: bool) -> bool:
        """Do what `_end_here` does on a thread that hears of the outcome, away from the root."""
        enclosing = ENCLOSING_PASSES.set((*ENCLOSING_PASSES.get(), pass_id))
        try:
            return self._end_here(context, pass_id, committed)
        finally:
            ENCLOSING_PASSES.reset(enclosing)

    def _on_outcome(self, request: ServiceRequest) -> None:
        outcome = _as_outcome(request.header)
        context_id, pass_id, committed = outcome.context_id, outcome.pass_id, outcome.committed
        context = self._contexts.find(context_id)
        if context is None:
            request.reply()
            return
        if outcome.missed:
            for name in self._known_among(outcome.missed):
                forward(self._worker, name, OUTCOME, [context_id, pass_id, committed, []])
        try:
            is_news = self._end_elsewhere(context, pass_id, committed)
        except BaseException:
            # Other workers have kept their gradients, or will: drop the context everywhere.
            self._leases.release(context.id)
            raise
        request.reply()
        if is_news:
            # The root notifies all workers that took part of a commit, but may not reach them; of
            # an abort it notifies only the workers that it knows.
            is_from_root = request.frm.id == maker_of(pass_id)
            if not committed or not is_from_root or pass_id in context.in_doubt:
                self._forward(context, pass_id, committed, request.frm.name)
        elif context.outcomes[pass_id] != committed:
            # The root could not reach the home and died while it notified others of the commit, and
            # the home aborted before it heard of that. Some have the gradients: all must drop them.
            self._leases.release(context.id)

    def _known_among(self, missed: Iterable[str | int]) -> list[str]:
        """Return the listed workers that are known here, each once: the list is a peer's."""
        peers = self._worker.peers
        names = (peers.holder_of(to) if isinstance(to, int) else to for to in missed)
        return [name for name in dict.fromkeys(names) if name is not None and peers.get(name)]

    def _forward(
        self, context: Context, pass_id: int, committed: bool, heard_from: str | None = None
    ) -> None:
        notice = [context.id, pass_id, committed, []]
        for name in context.known_but(self._worker.name, heard_from):
            forward(self._worker, name, OUTCOME, notice)
        if committed and context.home_id != self._worker.id:
            # Perhaps no worker known here knows the home. An abort need not be sent to it: it
            # aborts by itself once the root is lost.
            forward(self._worker, context.home_id, OUTCOME, notice)

    def _on_lost(self, who: WorkerInfo, error: BaseException) -> Callable[[], None]:
        todo: list[Callable[[], object]] = []
        for context in self._contexts.all():
            # Lists of keys, since other threads might change the items while a list is made.
            for pass_id in list(context.outcomes):
                if maker_of(pass_id) == who.id and context.outcomes.get(pass_id):
                    todo.append(partial(self._forward, context, pass_id, True, who.name))
            for pass_id in [*list(context.passes), *list(context.in_doubt)]:
                root = maker_of(pass_id)
                if context.home_id != self._worker.id:
                    if root != self._worker.id:
                        # The notice of its outcome may have been lost with that worker.
                        todo.append(partial(self._start, self._ask_home, context, pass_id))
                elif root == who.id:
                    todo.append(partial(self._abort_orphan, context, pass_id))
                elif root != self._worker.id and pass_id in context.passes:
                    # Perhaps no other worker is left to ask this one, and the root is lost, too.
                    todo.append(partial(self._start, self._ask_root, root, context, pass_id))

        def act() -> None:
            for each in todo:
                each()

        return act

    def doubt(self, who: WorkerInfo) -> None:
        """Handle a worker's loss during its request, which `_on_lost` may have missed."""
        self._on_lost(who, WorkerLost(who.name))()

    def _start(self, function: Callable[..., object], *args: Any) -> None:
        self._worker.host.start(partial(function, *args))

    def _ask_home(self, context: Context, pass_id: int) -> None:
        asked = [context.id, pass_id]
        if not notify(self._worker, context.home_id, IN_DOUBT, asked, dials_lost=True):
            # The home can't be reached, and no other worker is sure of the outcome.
            self._leases.release(context.id)

    def _on_in_doubt(self, request: ServiceRequest) -> None:
        """Answer a question for a pass's outcome: the home asks the root, others ask the home."""
        asked = _as_question(request.header)
        context_id, pass_id = asked.context_id, asked.pass_id
        context = self._contexts.find(context_id)
        committed: bool | None = False
        if context is not None:
            # Both before `outcomes` is read: known workers are notified of a later outcome.
            context.meet(request.frm)
            context.in_doubt[pass_id] = None
            is_here = pass_id in context.passes
            committed = context.outcomes.get(pass_id)
            root = maker_of(pass_id)
            if committed is None and root != self._worker.id:
                self._start(self._ask_root, root, context, pass_id)
            elif committed is None and not is_here:
                # The pass is of an earlier incarnation of this worker.
                committed = False
        if committed is not None:
            notice = [context_id, pass_id, committed, []]
            forward(self._worker, request.frm.name, OUTCOME, notice)

    def _ask_root(self, root: int, context: Context, pass_id: int) -> None:
        """At the home, ask the root of a pass for its outcome; abort if the root is lost."""
        if not notify(self._worker, root, IN_DOUBT, [context.id, pass_id]):
            self._abort_orphan(context, pass_id)

    def _abort_orphan(self, context: Context, pass_id: int) -> None:
        """Abort a pass whose root was lost with its outcome unknown; only the home does this."""
        if self._end_elsewhere(context, pass_id, False):
            self._forward(context, pass_id, False)
