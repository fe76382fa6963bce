"""Contexts, which keep the passes of many callers apart, on one worker.

A context has a 64-bit id that contains the id of its home, the worker that opened it. Every worker
that a recorded call reaches has its own Context under that id, with the messages it sent and
received, the gradients of its leaves, and the running passes. Contexts are leases: they end when
the home releases them or is lost.

``CURRENT`` is the context in which calls of this thread or async task are recorded, with the
*point* in the program: the ordinals of the calls that led here. It follows a call into its handler.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import count
from typing import Any, Final

import msgspec

from telegrad.distributed.contexts.gradient_map import GradientMap
from telegrad.distributed.contexts.message_nodes import Path, RecvNode, SendNode
from telegrad.distributed.notices import LateNotice
from telegrad.errors import ContextError, WorkerLost
from telegrad.graph import added
from telegrad.rpc.names import WorkerInfo, maker_of
from telegrad.tensors import Tensor

BACKWARD_PHASE: Final = 1 << 62
"""The first number of a pass's paths. Larger than the ordinal of any call, it sorts them after the
forward program."""

RELEASED: Final = (
    "was under way when the context was released: leave the `with context()` block after the "
    "backward pass"
)

_REMEMBERED = 4096  # How many released ids a worker remembers.
# Seconds that a new context waits for an optimiser step in place. Not for ever: user code in the
# step may itself wait for a call in that context.
_PATIENCE = 10.0


class Context(msgspec.Struct, eq=False):
    """One worker's part of a context."""

    _contexts: "Contexts"
    id: int
    home_id: int
    """The id of the worker that opened the context."""
    introduced_by: str | None
    """The worker that first called with this context; None at home."""
    lock: AbstractContextManager[Any] = msgspec.field(default_factory=type(threading.RLock()))
    sends: dict[int, SendNode] = {}
    """By message id, as `spent`, `failed` and `recvs` are."""
    spent: dict[int, SendNode] = {}
    """Sends that ran in a pass that did not keep its graph, and so can't run again."""
    failed: dict[int, str] = {}
    """Messages of calls that failed here, with the error's type; their sends are removed."""
    recvs: dict[int, RecvNode] = {}
    known: dict[str, WorkerInfo] = {}
    """The workers that this one exchanged messages with in this context."""
    doubtful: dict[str, None] = {}
    """At home: known workers that were lost since, and may have dropped the context."""
    gradients: dict[Tensor, Tensor] = {}
    passes: dict[int, Any] = {}
    """The local passes that have neither committed nor aborted, by pass id."""
    outcomes: dict[int, bool] = {}
    """Whether each ended pass committed; late messages of these passes are dropped."""
    late: LateNotice | None = None
    """At home: the notice that the last pass started here has committed."""
    in_doubt: dict[int, None] = {}
    """The passes whose outcome another worker has asked for here, and will be notified of."""
    pass_count: int = 0
    """How many passes this worker started on threads that have no point in the program."""
    released: bool = False

    def __repr__(self) -> str:
        return f"<Context {self.id}>"

    def is_home(self, name: str) -> bool:
        """Tell whether a worker that this one knows in the context is the home."""
        worker = self.known.get(name)
        return worker is not None and worker.id == self.home_id

    def take_over(self, *pass_: Any) -> None:
        """Take over a pass that began in this process alone; see ``PassCoordinator``."""
        if self.released:
            raise ContextError(
                f"expected values of a live context, but the backward pass reached one that came "
                f"from another worker in context {self.id}, which is released; call backward "
                "inside of the `with context()` block that recorded it"
            )
        self._contexts.take_over(self, *pass_)

    def meet(self, worker: WorkerInfo) -> None:
        """Note that messages of this context go to or come from a worker."""
        self.known.setdefault(worker.name, worker)

    def known_but(self, *names: str | None) -> list[str]:
        """Return the names of the context's known workers, without the given ones."""
        # A copy in one step: handlers of this context may still add workers.
        return [name for name in list(self.known) if name not in names]

    def add_gradients(self, staged: dict[Tensor, Tensor]) -> None:
        """Make the gradients of a pass that commits visible: all of them or, on error, none."""
        with self.lock:
            if self.released:
                # See `Contexts.drop`: nobody would remove them again.
                return
            old = self.gradients
            sums = staged
            while old:
                found = {x: old[x] for x in staged if x in old}
                sums = {x: added(found[x], g) if x in found else g for x, g in staged.items()}
                if all(old.get(x) is found.get(x) for x in staged):
                    break
                # Meanwhile a finalizer has run a pass and added its gradients: sum again.
            old.update(sums)

    def committed_gradients(self) -> GradientMap:
        """Return the gradients, once every local pass has committed or aborted."""
        for local_pass in list(self.passes.values()):
            if local_pass.plan.pass_id in ENCLOSING_PASSES.get():
                raise ContextError(
                    f"expected gradients to be read after the backward pass of context {self.id}, "
                    "got it in a hook of that pass, in what a hook called or in a finalizer that "
                    "interrupted the pass, which would wait for itself; a hook is given its "
                    "gradient"
                )
            local_pass.ended.wait()
        with self.lock:
            return GradientMap(self.gradients)


class ProgramPoint(msgspec.Struct, eq=False):
    """A thread's place in the program: the context, and the calls that led here."""

    context: Context
    path: Path
    _ordinals: Iterator[int] = msgspec.field(default_factory=partial(count, 1))
    """Yields each ordinal once, also to several threads that share the point."""

    def step(self) -> Path:
        """Return the path of the next message made here."""
        return (*self.path, next(self._ordinals))


CURRENT: ContextVar[ProgramPoint | None] = ContextVar("telegrad.context", default=None)
ENCLOSING_PASSES: ContextVar[tuple[int, ...]] = ContextVar("telegrad.passes", default=())
"""The ids of the passes that wait for the current code: passes that run here, and those whose hooks
or rules called this handler. This code must not wait for these passes to end."""


class Contexts:
    """All contexts of one worker."""

    def __init__(self, worker_name: str, take_over: Callable[..., None]) -> None:
        self._worker_name = worker_name
        self.take_over = take_over
        """Take over a pass that reached one of these contexts: ``PassCoordinator.take_over``."""
        self._lock = threading.RLock()
        self._gate = threading.RLock()
        """Held while no new context may be made: see `hold_back`."""
        self._by_id: dict[int, Context] = {}
        self.find = self._by_id.get
        """Return the context of that id, or None."""
        self._released: OrderedDict[int, str | None] = OrderedDict()
        """The most recently released ids, each with the loss that ended it, if one did. A late
        call must not open them again."""

    def __len__(self) -> int:
        return len(self._by_id)

    def new(self, context_id: int) -> Context:
        """Return a new context with this worker as its home; no other worker knows of it yet."""
        made = self._by_id[context_id] = Context(self, context_id, maker_of(context_id), None)
        # The holder of the gate sees the new context, which is used only after the gate opens.
        if self._gate.acquire(timeout=_PATIENCE):
            self._gate.release()
        return made

    def open(self, context_id: int, introduced_by: WorkerInfo) -> Context:
        """Return the context of that id; make it on its first call to this worker."""
        found = self._by_id.get(context_id)
        if found is None:
            is_held = self._gate.acquire(timeout=_PATIENCE)
            try:
                with self._lock:
                    if context_id in self._released:
                        raise self._unknown(context_id)
                    home = maker_of(context_id)
                    made = Context(self, context_id, home, introduced_by.name)
                    # Another thread, or a finalizer on this one, may have opened it meanwhile.
                    found = self._by_id.setdefault(context_id, made)
            finally:
                if is_held:
                    self._gate.release()
        found.meet(introduced_by)
        return found

    @contextmanager
    def hold_back(self, context_id: int) -> Iterator[bool]:
        """Hold back new contexts inside the block.

        Yields whether no pass may still need a graph here: there is no other context, in which a
        handler may be recording, and this one has no send that a pass has not run.
        """
        with self._gate:
            yield all(each.id == context_id and not each.sends for each in self.all())

    def get(self, context_id: int) -> Context:
        """Return the context of that id; raise if it is unknown, released or not an id."""
        try:
            return self._by_id[context_id]
        except (KeyError, TypeError):
            raise self._unknown(context_id) from None

    def met(self, context_id: int) -> Context | None:
        """Return the context of that id; None if unknown here; raise if it is released."""
        with self._lock:
            found = self._by_id.get(context_id)
            if found is None and context_id in self._released:
                raise self._unknown(context_id)
            return found

    def ended(self, context_id: int) -> Context:
        """Return a stand-in for a released context, for values that arrive after its end."""
        context = Context(self, context_id, maker_of(context_id), None)
        context.released = True
        return context

    def drop(self, context_id: int, lost: str | None = None, committed: int = 0) -> Context | None:
        """Forget a context with all its data; abort its passes, except one that has committed.

        `lost` describes the loss that ended it, if one did, for later errors.
        """
        with self._lock:
            found = self._by_id.pop(context_id, None)
            self._released.setdefault(context_id, lost)
            if len(self._released) > _REMEMBERED:
                # The oldest. To find it, a plain dict would scan over all deleted entries.
                self._released.popitem(last=False)
        if found is not None:
            found.released = True
            # Break cycles: sends and recorded gradients may depend on received values, whose recv
            # nodes refer to the context. If such a cycle goes through another framework's graph,
            # Python's collector can't see it.
            found.sends.clear()
            found.spent.clear()
            found.recvs.clear()
            with found.lock:
                # Freed after the lock is released, since freeing them may run users' code.
                gradients, found.gradients = found.gradients, {}
                # A local pass made later checks under this lock that the context is released.
                passes = found.passes.copy()
            del gradients
            for pass_id, local_pass in passes.items():
                if pass_id != committed:
                    local_pass.abort(RELEASED if lost is None else f"was under way when {lost}")
        return found

    def all(self) -> list[Context]:
        """Return the current contexts, oldest first."""
        with self._lock:
            return list(self._by_id.values())

    def loss_of(self, context_id: int) -> str | None:
        """Return a description of the loss that ended a context, if one did."""
        return self._released.get(context_id)

    def _unknown(self, context_id: int) -> ContextError | WorkerLost:
        if not isinstance(context_id, int):
            return ContextError(
                f"expected the id of a context, an int, got {type(context_id).__name__}: hand over "
                "first what `with context() as context_id` gives"
            )
        lost = self.loss_of(context_id)
        if lost is not None:
            return gone_on(self._worker_name, context_id, lost)
        return ContextError(
            f"expected the id of a live context on worker {self._worker_name!r}, got {context_id}; "
            "it was never used here or is released: call this inside of `with context() as "
            "context_id`"
        )


def gone_on(name: str, context_id: int, lost: str) -> WorkerLost:
    """Return the error for a context that a loss ended on a worker."""
    return WorkerLost(
        f"context {context_id} is gone on worker {name!r} since {lost}; run the step again, in a "
        "new context"
    )
