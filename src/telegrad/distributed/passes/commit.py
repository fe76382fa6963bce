"""The end of a pass, everywhere: all workers that took part keep its gradients, or none does.

The root tells everyone how its pass ended. When it dies, or can't reach someone, the home of the
context stands in for it, which a context does not outlive:

1. The root tells the home of a success before all others, and waits until that has heard it. So
   where others know of a success, the home does, unless the network keeps it from the root.
2. Whoever loses a worker and has a part that has not been settled asks the home; the home itself
   asks the root. The home answers when it knows: from the root, from someone whom the root had
   told, or, once the root is lost, that the pass failed.
3. Whoever loses the root of a pass that succeeded passes that on; so does everyone who hears it
   from anyone but the root. A failure is passed on by everyone who hears of it.
4. Whoever hears both, or hears of a success and can't keep its gradients, releases the context, and
   has the home do so: then nobody has any gradients of it.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from msgspec import convert

from telegrad.distributed.contexts.context import ENCLOSING_PASSES, Context
from telegrad.distributed.contexts.recorder import Recorder
from telegrad.distributed.notices import pass_on, tell
from telegrad.distributed.passes.local_pass import LocalPass
from telegrad.rpc.calls.service import ServiceRequest
from telegrad.rpc.names import WorkerInfo, maker_of

__all__ = ["PassCommit"]

SETTLE: Final = "autograd.settle"
UNSETTLED: Final = "autograd.unsettled"
# What the two notices carry; checked, since an id of another type would make `_on_lost` fail. The
# home may be known by its id alone.
_Settled = tuple[int, int, bool, list[str | int]]
_Unsettled = tuple[int, int]


class PassCommit:
    """One worker's end of it."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._worker = worker = recorder.worker
        worker.register_service(SETTLE, self._on_settle, inline=True)
        worker.register_service(UNSETTLED, self._on_unsettled, inline=True)
        worker.on_worker_lost(self._on_lost)

    def settle_everywhere(
        self, context: Context, pass_id: int, names: Iterable[str], succeeded: bool
    ) -> None:
        """Called at the root, with the workers that took part."""
        try:
            self._settle_here(context, pass_id, succeeded)
        except BaseException:
            # Nobody has been told of a success.
            self._tell_others(context, pass_id, context.known, False)
            raise
        self._tell_others(context, pass_id, names, succeeded)

    def _tell_others(
        self, context: Context, pass_id: int, names: Iterable[str], succeeded: bool
    ) -> None:
        # Listed only now: whoever makes itself known from here on is answered.
        met = list(names)
        if self._worker.name in met:
            met.remove(self._worker.name)
        notice = [context.id, pass_id, succeeded, []]
        if self._is_home(context):
            self._tell_each(met, notice)
            return
        met = [name for name in met if not context.is_home(name)]
        is_heard = False
        try:
            is_heard = succeeded and self._is_heard_at_home(context, notice)
        finally:
            # Also after Ctrl-C: this worker has kept its gradients.
            self._tell_each(met if is_heard else [context.home_id, *met], notice)

    def _is_heard_at_home(self, context: Context, notice: list[Any]) -> bool:
        """Tells the home and waits for its answer; says whether that came."""
        try:
            if self._worker.find(context.home_id).lost is None:
                self._worker.ask_service(context.home_id, SETTLE, notice)
                return True
        except Exception:
            # Lost, or cut off: it may hear of it from the others.
            pass
        return False

    def _tell_each(self, others: Sequence[str | int], notice: list[Any]) -> None:
        missed = [to for to in others if not tell(self._worker, to, SETTLE, notice)]
        context_id, pass_id, succeeded, _ = notice
        if missed and succeeded:
            # They took part, so another who did can reach them, or has lost them.
            for to in others:
                if to not in missed:
                    tell(self._worker, to, SETTLE, [context_id, pass_id, True, missed])

    def _is_home(self, context: Context) -> bool:
        return context.home_id == self._worker.id

    def _settle_here(self, context: Context, pass_id: int, succeeded: bool) -> bool:
        with context.lock:
            if pass_id in context.settled:
                return False
            context.settled[pass_id] = succeeded
            part: LocalPass | None = context.passes.get(pass_id)
        if part is not None:
            # Also where another worker's pass is settled, by whichever thread hears of it.
            served = ENCLOSING_PASSES.set((*ENCLOSING_PASSES.get(), pass_id))
            try:
                part.settle(succeeded)
            except BaseException:
                # There is no memory for the sums, say: nothing was kept.
                context.settled[pass_id] = False
                part.settle(False)
                raise
            finally:
                ENCLOSING_PASSES.reset(served)
                context.passes.pop(pass_id, None)
        return True

    def _on_settle(self, request: ServiceRequest) -> None:
        context_id, pass_id, succeeded, missed = convert(request.header, _Settled)
        context = self._recorder.contexts.find(context_id)
        if context is None:
            request.reply()
            return
        for to in missed:
            pass_on(self._worker, to, SETTLE, [context_id, pass_id, succeeded, []])
        try:
            is_news = self._settle_here(context, pass_id, succeeded)
        except BaseException:
            # Others have kept theirs, or will.
            self._recorder.autograd.leases.release(context.id)
            raise
        request.reply()
        if is_news:
            # After a success the root knows all who took part, but may not reach them; after a
            # failure it knows only its own peers.
            is_from_root = request.frm.id == maker_of(pass_id)
            if not succeeded or not is_from_root or pass_id in context.doubted:
                self._pass_on(context, pass_id, succeeded, request.frm.name)
        elif context.settled[pass_id] != succeeded:
            # The root, which could not reach the home, died as it told of its success, and the home
            # had given it up before it heard of that: some have the gradients, so nobody may.
            self._recorder.autograd.leases.release(context.id)

    def _pass_on(
        self, context: Context, pass_id: int, succeeded: bool, heard_from: str | None = None
    ) -> None:
        notice = [context.id, pass_id, succeeded, []]
        heard = (self._worker.name, heard_from)
        for name in list(context.known):
            if name not in heard:
                pass_on(self._worker, name, SETTLE, notice)
        if succeeded and not self._is_home(context):
            # Nobody that is known here may know the home. Of a failure it has heard, or will: it
            # decides so itself once the root is lost.
            pass_on(self._worker, context.home_id, SETTLE, notice)

    def _on_lost(self, who: WorkerInfo, error: BaseException) -> None:
        for context in self._recorder.contexts.all():
            # Not a list of the items, which others might change while it is made.
            for pass_id in list(context.settled):
                if maker_of(pass_id) == who.id and context.settled.get(pass_id):
                    self._pass_on(context, pass_id, True, who.name)
            for pass_id in [*list(context.passes), *list(context.doubted)]:
                root = maker_of(pass_id)
                if not self._is_home(context):
                    if root != self._worker.id:
                        # The notice of its end may have been lost with that worker.
                        self._start(self._ask_home, context, pass_id)
                elif root == who.id:
                    self._give_up(context, pass_id)
                elif root != self._worker.id and pass_id in context.passes:
                    # Nobody may be left who would ask this one: the root may be lost, too.
                    self._start(self._ask_root, root, context, pass_id)

    def _start(self, function: Callable[..., object], *args: Any) -> None:
        self._worker.host.start(partial(function, *args))

    def _ask_home(self, context: Context, pass_id: int) -> None:
        if not tell(self._worker, context.home_id, UNSETTLED, [context.id, pass_id]):
            # Nobody else could say how the pass ended.
            self._recorder.autograd.leases.release(context.id)

    def _on_unsettled(self, request: ServiceRequest) -> None:
        """The home is asked how a pass ended; the root, by the home, whether it knows the pass."""
        context_id, pass_id = convert(request.header, _Unsettled)
        context = self._recorder.contexts.find(context_id)
        succeeded: bool | None = False
        if context is not None:
            # Both before `settled` is read: an end that comes later is told to those known.
            context.meet(request.frm)
            context.doubted[pass_id] = None
            is_here = pass_id in context.passes
            succeeded = context.settled.get(pass_id)
            root = maker_of(pass_id)
            if succeeded is None and root != self._worker.id:
                self._start(self._ask_root, root, context, pass_id)
            elif succeeded is None and not is_here:
                # One of an earlier incarnation of this worker.
                succeeded = False
        if succeeded is not None:
            notice = [context_id, pass_id, succeeded, []]
            pass_on(self._worker, request.frm.name, SETTLE, notice)

    def _ask_root(self, root: int, context: Context, pass_id: int) -> None:
        """Makes sure that the home hears from the root of a pass, or of its end."""
        if not tell(self._worker, root, UNSETTLED, [context.id, pass_id]):
            self._give_up(context, pass_id)

    def _give_up(self, context: Context, pass_id: int) -> None:
        """Ends a pass whose root was lost before it told how it ended; only the home does so."""
        if self._settle_here(context, pass_id, False):
            self._pass_on(context, pass_id, False)
