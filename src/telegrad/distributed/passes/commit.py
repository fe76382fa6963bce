"""Atomic commitment of a pass: all workers that took part keep its gradients, or none does.

The root decides, commit or abort, and notifies everyone. When it dies, or can't reach someone, the
home of the context stands in for it, which a context does not outlive:

1. The root notifies the home of a commit before all others, and waits until that has answered. So
   where others know of a commit, the home does, unless the network keeps it from the root
   (``_notify_others``, ``_home_has_heard``).
2. A worker that loses another and has a local pass in doubt asks the home; the home itself asks the
   root. The home answers when it knows the outcome: from the root, from someone whom the root had
   notified, or, once the root is lost, by aborting the pass itself (``_on_lost``, ``_ask_home``,
   ``_on_in_doubt``, ``_ask_root``, ``_abort_orphan``).
3. A worker that loses the root of a pass that committed forwards that; so does everyone who hears
   it from anyone but the root. An abort is forwarded by everyone who hears of it (``_forward``).
4. A worker that hears both, or hears of a commit and can't keep its gradients, releases the
   context, and has the home do so: then nobody has any gradients of it (``_on_outcome``).

Where the root is the home all this is not needed, and the notice of a commit has time: nobody else
decides, and what is asked for after the commit is asked in a later frame.
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


# What the two messages carry; checked, since an id of another type would make `_on_lost` fail. Made
# once: a tuple's type would be parsed for each message.
class _Outcome(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    context_id: int
    pass_id: int
    committed: bool
    missed: list[str | int]
    """Who has not heard of it; the home may be known by its id alone."""


class _InDoubt(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    context_id: int
    pass_id: int


_as_outcome = converter(_Outcome)
_as_question = converter(_InDoubt)


class PassCommit:
    """One worker's end of the protocol."""

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
            # Nobody has been notified of a commit.
            self._notify_others(context, pass_id, context.known, False)
            raise
        self._notify_others(context, pass_id, names, True)

    def abort(self, context: Context, pass_id: int) -> None:
        """Drop what was staged, here and everywhere; called at the root."""
        self._end_here(context, pass_id, False)
        self._notify_others(context, pass_id, context.known, False)

    def _notify_others(
        self, context: Context, pass_id: int, names: Iterable[str], committed: bool
    ) -> None:
        # Listed only now: a worker that makes itself known from here on is answered.
        met = dict.fromkeys(names)
        met.pop(self._worker.name, None)
        notice = [context.id, pass_id, committed, []]
        if context.home_id == self._worker.id:
            if committed and met and context.known.keys() >= met.keys():
                # The gradients are asked for after it. Who is lost by then drops the context.
                late = LateNotice(self._worker, [*met], OUTCOME, notice)
                with context.lock:
                    before, context.late = context.late, late
                if before is not None:
                    before.flush()
                self._worker.outgoing.ride(late)
            else:
                self._notify_each([*met], notice)
            return
        others = [name for name in met if not context.is_home(name)]
        is_heard = False
        try:
            is_heard = committed and self._home_has_heard(context, notice)
        finally:
            # Also after Ctrl-C: this worker has kept its gradients.
            self._notify_each(others if is_heard else [context.home_id, *others], notice)

    def _home_has_heard(self, context: Context, notice: list[Any]) -> bool:
        """Notify the home of the outcome and wait; return whether its answer came."""
        try:
            if self._worker.find(context.home_id).lost is None:
                self._worker.ask_service(context.home_id, OUTCOME, notice)
                return True
        except Exception:
            # Lost, or cut off: it may hear of it from the others.
            pass
        return False

    def _notify_each(self, others: Sequence[str | int], notice: list[Any]) -> None:
        context_id, pass_id, committed, _ = notice
        worker = self._worker
        missed = [to for to in others if not notify(worker, to, OUTCOME, notice, rides=committed)]
        if missed and committed:
            # They took part, so another who did can reach them, or has lost them.
            for to in others:
                if to not in missed:
                    notify(self._worker, to, OUTCOME, [context_id, pass_id, True, missed])

    def _end_here(self, context: Context, pass_id: int, committed: bool) -> bool:
        """End a local pass, which ``ENCLOSING_PASSES`` has; return False if it had ended."""
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
                # There is no memory for the sums, say: nothing was kept.
                context.outcomes[pass_id] = False
                local_pass.abort()
                raise
            finally:
                context.passes.pop(pass_id, None)
        return True

    def _end_elsewhere(self, context: Context, pass_id: int, committed: bool) -> bool:
        """Do the same on whichever thread hears of the outcome, away from the root."""
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
            # Others have kept theirs, or will.
            self._leases.release(context.id)
            raise
        request.reply()
        if is_news:
            # Of a commit the root notifies all who took part, but may not reach them; of an abort
            # only its own peers.
            is_from_root = request.frm.id == maker_of(pass_id)
            if not committed or not is_from_root or pass_id in context.in_doubt:
                self._forward(context, pass_id, committed, request.frm.name)
        elif context.outcomes[pass_id] != committed:
            # The root, which could not reach the home, died as it notified others of the commit,
            # and the home aborted before it heard of that: some have the gradients, so nobody may.
            self._leases.release(context.id)

    def _known_among(self, missed: Iterable[str | int]) -> list[str]:
        """Return the workers of a list that came, each once: there are as many as there are."""
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
            # Nobody that is known here may know the home. Of an abort it has heard, or will: it
            # aborts by itself once the root is lost.
            forward(self._worker, context.home_id, OUTCOME, notice)

    def _on_lost(self, who: WorkerInfo, error: BaseException) -> Callable[[], None]:
        todo: list[Callable[[], object]] = []
        for context in self._contexts.all():
            # Not a list of the items, which others might change while it is made.
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
                    # Nobody may be left who would ask this one: the root may be lost, too.
                    todo.append(partial(self._start, self._ask_root, root, context, pass_id))

        def act() -> None:
            for each in todo:
                each()

        return act

    def doubt(self, who: WorkerInfo) -> None:
        """Note that a worker was lost before what it asked for was done here: see `_on_lost`."""
        self._on_lost(who, WorkerLost(who.name))()

    def _start(self, function: Callable[..., object], *args: Any) -> None:
        self._worker.host.start(partial(function, *args))

    def _ask_home(self, context: Context, pass_id: int) -> None:
        asked = [context.id, pass_id]
        if not notify(self._worker, context.home_id, IN_DOUBT, asked, dials_lost=True):
            # Nobody else knows the outcome.
            self._leases.release(context.id)

    def _on_in_doubt(self, request: ServiceRequest) -> None:
        """Answer for the outcome of a pass: the home asks the root, all others ask the home."""
        asked = _as_question(request.header)
        context_id, pass_id = asked.context_id, asked.pass_id
        context = self._contexts.find(context_id)
        committed: bool | None = False
        if context is not None:
            # Both before `outcomes` is read: of an outcome that comes later those known are
            # notified.
            context.meet(request.frm)
            context.in_doubt[pass_id] = None
            is_here = pass_id in context.passes
            committed = context.outcomes.get(pass_id)
            root = maker_of(pass_id)
            if committed is None and root != self._worker.id:
                self._start(self._ask_root, root, context, pass_id)
            elif committed is None and not is_here:
                # One of an earlier incarnation of this worker.
                committed = False
        if committed is not None:
            notice = [context_id, pass_id, committed, []]
            forward(self._worker, request.frm.name, OUTCOME, notice)

    def _ask_root(self, root: int, context: Context, pass_id: int) -> None:
        """Ask the root of a pass for its outcome, at the home; abort if the root is lost."""
        if not notify(self._worker, root, IN_DOUBT, [context.id, pass_id]):
            self._abort_orphan(context, pass_id)

    def _abort_orphan(self, context: Context, pass_id: int) -> None:
        """Abort a pass whose root was lost with its outcome unknown; only the home does so."""
        if self._end_elsewhere(context, pass_id, False):
            self._forward(context, pass_id, False)
