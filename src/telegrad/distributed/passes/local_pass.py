"""The local pass: one worker's state in a distributed pass; decides, and sends nothing.

It is made on first contact: the root's by ``start``, another worker's when the first request of
that pass comes. It counts dependencies once, from the roots and from every send of the context;
then gradients are fed, what is ready runs, and what leaves is collected as departures for the
coordinator to send.

Where inputs were chosen, a node runs only if it leads to one of them here or to a recv node, behind
which one may lie. Which recv nodes lead to none only others could tell, by a message each; but one
that arrived before every input was made can't, and at a root that has all the inputs that is seen.

Gradients are staged here and become the context's when the pass is committed.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from operator import attrgetter
from typing import Any, Final

import msgspec

from telegrad.autograd.anomaly import refuse_nan
from telegrad.distributed import frameworks
from telegrad.distributed.contexts.context import BACKWARD_PHASE, Context, ProgramPoint
from telegrad.distributed.contexts.message_nodes import RecvNode, SendNode
from telegrad.distributed.passes.future_lock import FutureLock
from telegrad.distributed.passes.plan import PassPlan
from telegrad.distributed.passes.region_pool import Pace, RegionPool
from telegrad.engine import OrderedTask, keep_retained
from telegrad.errors import GradientError, GraphFreedError, PassAborted, WorkerLost
from telegrad.graph import Bundle
from telegrad.rpc.calls.future import Future
from telegrad.rpc.host import Host
from telegrad.rpc.names import WorkerInfo
from telegrad.tensors import Tensor, wrap
from telegrad.tensors.recording.accumulation import own

Feed = tuple[int, Sequence[Any]]
"""A message id and a gradient for each tensor of that message, None where there is none."""


_NOTHING: Final = nullcontext()
_by_path = attrgetter("path")
# A local pass pauses, so that what leaves is sent and others work on it while the rest runs: when
# this many gradients are to leave, or when one has waited this many seconds. Smaller numbers cost
# more in messages than they gain.
_MOST: Final = 32
_LONGEST: Final = 0.0005
# While the last so many requests are all open, it does not pause because of time: each keeps a
# thread of the worker that was asked, and what comes there sooner only waits there.
_AT_ONCE: Final = 8


Departure = tuple[RecvNode, Sequence[Any]]
"""A gradient that leaves this worker, for the peer of its recv node."""

Departures = dict[str, list[Departure]]
"""What leaves a local pass, by the worker it is for."""


class LocalPass(msgspec.Struct, eq=False):
    """One worker's state in one pass."""

    context: Context
    plan: PassPlan
    _worker: WorkerInfo
    _host: Host
    _pace: Pace
    _watch: Callable[[str], AbstractContextManager[Any]] | None = None
    staged: dict[Tensor, Tensor] = {}
    captured: dict[Any, Tensor] = {}
    targets: dict[Any, Any] = {}
    """Nodes whose gradient was asked for, with the name under which it is captured."""
    asked: tuple[Future[Any], ...] = ()
    """The answers to the requests that were made last."""
    _wanted: dict[int, int] = {}
    """References whose gradient was asked for, with the one under which it is captured."""
    _lock: FutureLock = msgspec.field(default_factory=FutureLock)
    _region_pool: RegionPool | None = None
    _departures: Departures = {}
    _kept: list[Callable[[], None]] = []
    """Each takes back a gradient that a value retained in this pass."""
    _loans: dict[Any, Any] = {}
    """What keeps gradients of this pass for the other framework: see ``Framework.completed``."""
    _foreign_leaves: dict[Any, Any] = {}
    """See ``Cut.leaves``."""
    _first_input: int = -1
    """The key of the oldest input, where all are here: older recv nodes lead to none."""
    _reported: int = 0
    """How many waiting nodes the root has been told of."""
    _counted: bool = False
    _error: BaseException | None = None
    _ended: Future[None] | None = None
    _is_over: bool = False
    # Made by __post_init__ of the others.
    point: ProgramPoint = None  # type: ignore[assignment]
    """The point of calls that hooks and rules make: after all gradients of the pass."""
    _task: OrderedTask = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        plan = self.plan
        self.point = ProgramPoint(
            self.context, (BACKWARD_PHASE, *plan.path, BACKWARD_PHASE + 1, self._worker.id)
        )
        self._task = OrderedTask(
            self._deliver,
            plan.keep_graph,
            plan.recorded,
            self.targets,
            depart=self._depart,
            watch=self._watch,
        )
        if plan.targets is not None:
            self._task.is_goal = self._is_goal
            self._task.captures = plan.captures
        if plan.check_nan:
            self._task.check = refuse_nan

    # What others ask for.

    def want(self, node: Any, reference: int) -> None:
        """Capture the gradient of a node for a reference; several may lead to one node."""
        self._wanted[reference] = self.targets.setdefault(node, reference)

    def captured_for(self, reference: int) -> Any:
        """Return the gradient that was captured for a reference, or None."""
        return self.captured.get(self._wanted.get(reference))

    # Steps 1 and 4: count, on first contact.

    def _count(self, roots: Iterable[Any] = ()) -> None:
        self._counted = True
        plan, task = self.plan, self._task
        if len(self.context.passes) > 1:
            for local_pass in list(self.context.passes.values()):
                if local_pass is not self and not local_pass.plan.keep_graph:
                    # This pass may have come here before the outcome of that one, by another way:
                    # whether what that one freed is an error must not depend on it.
                    local_pass._forget_spent()
        # A copy in one step: handlers of this context may still add to it.
        sends = list(self.context.sends.values())
        if len(sends) > 1:
            sends.sort(key=_by_path)
        entries = [*roots, *sends]
        if plan.targets is not None and roots and not plan.targets:
            # Leaves, and inputs in another framework's graph, have no age: -1 is before everything.
            self._first_input = min((node.key for node in self.targets), default=-1)
        if not frameworks.known:
            task.count(entries)
            return
        is_plain = plan.targets is None and not plan.check_nan
        found = frameworks.cut(entries, plan.keep_graph, self.targets, is_plain)
        task.joined, self._foreign_leaves, pieces, at_once = found
        task.count(entries)
        if pieces:
            self._prepare(pieces, at_once)

    def _prepare(self, pieces: Sequence[Any], at_once: int) -> None:
        """Have the other framework's graph run what is needed of it, side by side if it can."""
        if self._task.skipped:
            for piece in pieces:
                piece.leave_out(self._task.skipped)
        # Not where it is recorded: the keys of nodes made side by side would depend on timing.
        if at_once > 1 and not self.plan.recorded and all(each.is_apart for each in pieces):
            pool = RegionPool(self._host, self._pace, set(pieces), at_once)
            self._region_pool = self._task.pool = pool

    def _is_goal(self, node: Any) -> bool:
        """Tell whether a node is an input, or a recv node behind which there may be one."""
        if node in self.targets:
            return True
        is_recv = node.is_boundary and node not in self._task.joined
        return is_recv and node.key > self._first_input

    # Steps 2 and 3: run, and collect what leaves.

    def start(self, roots: dict[Any, Any]) -> tuple[Departures, int]:
        """Run from the roots; return what leaves and by how much the number waiting changed."""
        # Without the lock: until something has left nobody else runs this pass.
        self._count(roots)
        for root, cotangent in roots.items():
            self._task.feed(root, cotangent)
        return self._run()

    def receive(self, feeds: Iterable[Feed]) -> tuple[Departures, int]:
        """Run from the sends whose gradients came; return as ``start`` does."""
        with self._lock:
            if not self._counted:
                self._count()
            if self._task.live:
                # A search has been here. No frame comes until all searches have ended, so this
                # is the first one after them.
                self._task.drop_dead()
            for message_id, parts in feeds:
                self._task.feed(self._send_of(message_id), Bundle(parts))
            return self._run()

    def go_on(self) -> tuple[Departures, int]:
        """Run on after a pause; if only other threads are at work, when one of them is done."""
        if self._region_pool is not None and not self._task.ready:
            self._region_pool.wait()
        with self._lock:
            return self._run()

    def _run(self) -> tuple[Departures, int]:
        if self._error is not None:
            raise self._error
        task, clock = self._task, self._host.now
        try:
            # Whether others are still at work on all that was last sent.
            is_ahead = len(sent := self.asked) == _AT_ONCE and not any(one._done for one in sent)
            pause_at = math.inf if is_ahead else clock() + _LONGEST
            if frameworks.known:
                with frameworks.default_modes(_NOTHING, keeps_recording=True):
                    for loan in [*self._loans.values()]:
                        loan.run()
                    task.run(_MOST, pause_at, clock)
            else:
                task.run(_MOST, pause_at, clock)
            if task.retained:
                # At once: others may look at them as soon as the root's call has returned.
                self._kept += keep_retained(task.retained)
        except BaseException as error:
            self._error = error
            raise
        if self._error is not None:
            # The pass was aborted while this ran: nothing of it leaves any more.
            self._take_back()
            raise self._error
        departures, self._departures = self._departures, {}
        waiting = len(task.sums)
        change, self._reported = waiting - self._reported, waiting
        return departures, change

    def note_asked(self, answer: Future[Any]) -> None:
        """Note what was last sent; of two threads that do so at once one may go unnoted."""
        self.asked = (*self.asked, answer)[-_AT_ONCE:]

    @property
    def is_paused(self) -> bool:
        """Whether there is more to run; what is to leave should not wait for it."""
        if self._task.ready or (self._region_pool is not None and self._region_pool.under_way > 0):
            return True
        return bool(self._loans) and any(each.is_waiting for each in [*self._loans.values()])

    def size_of(self, message_id: int) -> int | None:
        """Return how many tensors a message from here had; None if it is not known here."""
        send = self.context.sends.get(message_id)
        return None if send is None else len(send.edges)

    def _send_of(self, message_id: int) -> SendNode:
        send = self.context.sends.get(message_id)
        if send is None:
            if self._error is not None:
                # The context was released, and its sends with it.
                raise self._error
            how = self.context.failed.get(message_id)
            if how is not None:
                raise GradientError(
                    f"expected results of calls that succeeded, but the backward pass reached what "
                    f"message {message_id} carried, and the call that worker {self._worker.name!r} "
                    f"made with it failed ({how}) though its handler, or one that this called, "
                    "kept a value; detach() what is kept, or make the call again and use its "
                    "result"
                )
            if message_id not in self.context.spent:
                raise WorkerLost(
                    f"worker {self._worker.name!r} was lost, and started again since: what message "
                    f"{message_id} carried is gone with the one that sent it; run the forward pass "
                    "again"
                )
            raise GraphFreedError(
                f"expected a graph that still has its saved values on worker "
                f"{self._worker.name!r}, but message {message_id} was freed by an earlier pass of "
                "this context; pass retain_graph=True to that earlier call"
            )
        return send

    def _depart(self, recv: RecvNode, cotangent: Any) -> bool:
        if recv.key <= self._first_input:
            return False
        if recv.context is not self.context:
            raise recv.stray(self.context.id)
        if recv.peer == self._worker.name and not self.plan.recorded:
            # A call to oneself: the other end is here. In a recorded pass it leaves all the same,
            # as a message, so that the next order has the same boundaries wherever the calls went.
            # Memory of its own, as if it had been sent, for what is not read-only.
            parts = [frameworks.copied(part) for part in recv.parts_of(cotangent)]
            self._task.feed(self._send_of(recv.message_id), Bundle(parts))
            return False
        departure = (recv, recv.parts_of(cotangent))
        self._departures.setdefault(recv.peer, []).append(departure)
        return True

    def _deliver(self, node: Any, gradient: Any, is_alone: bool) -> None:
        name = self.targets.get(node) if self.targets else None
        leaf = self._foreign_leaves.get(node) if self._foreign_leaves else None
        if leaf is None and not isinstance(gradient, Tensor):
            gradient = wrap(own(gradient, is_alone))
        if name is not None:
            self.captured[name] = gradient
        elif leaf is None:
            self.staged[node] = gradient
        elif type(leaf) is list:
            self._stage_all(leaf, gradient)
        else:
            self._stage_all([leaf], [gradient])

    def _stage_all(self, leaves: list[Any], gradients: Sequence[Any]) -> None:
        owner = frameworks.framework_of(leaves[0])
        assert owner is not None
        self.staged |= owner.completed(leaves, gradients, self.context.gradients, self._loans)

    def stage(self, leaf: Any, gradient: Any) -> None:
        """Stage a leaf's complete gradient until the pass is committed or aborted."""
        if isinstance(leaf, Tensor):
            self.staged[leaf] = gradient
        else:
            self._stage_all([leaf], [gradient])

    # Step 6: which sends are live?

    def discover(self, message_ids: Iterable[int] | None) -> list[RecvNode]:
        """Mark as live what these messages (or the waiting nodes) reach; return new boundaries."""
        with self._lock:
            if not self._counted:
                self._count()
            if message_ids is None:
                return self._follow_own(self._task.discover(list(self._task.sums)))
            sends = [self._send_of(message_id) for message_id in message_ids]
            return self._follow_own(self._task.discover(sends))

    def _follow_own(self, boundaries: list[Any]) -> list[RecvNode]:
        """Go on at the other end of calls to oneself; return the boundaries to others."""
        others = []
        while boundaries:
            recv = boundaries.pop()
            if recv.context is not self.context:
                raise recv.stray(self.context.id)
            if recv.peer == self._worker.name:
                boundaries.extend(self._task.discover([self._send_of(recv.message_id)]))
            else:
                others.append(recv)
        return others

    def unused(self) -> list[SendNode]:
        """Return the sends that no gradient will come for; called after the search."""
        task = self._task
        sends = list(self.context.sends.values())
        used = (task.done, task.skipped, task.live)
        return [send for send in sends if not any(send in nodes for nodes in used)]

    # Step 7: all or nothing.

    def commit(self) -> None:
        """Make the staged gradients visible, unless the context was released with the commit."""
        # Every request has been answered, so no thread runs this pass any more.
        if not self.context.released:
            if self.staged:
                self.context.add_gradients(self.staged)
            if not self.plan.keep_graph:
                self._forget_spent()
        if self._loans and (given := self._given_back()) and not self.context.released:
            self.context.gradients.update(given)
        self._task.end()
        self._end()

    def abort(self, why: str = "failed") -> None:
        """Drop the staged gradients; `why` ends the error for those that still run the pass."""
        # A thread may still run this pass, and is not waited for: nobody reads what it stages from
        # now on. The new error also replaces one whose traceback leads back here: a cycle.
        self._error = PassAborted(f"pass {self.plan.pass_id} of context {self.context.id} {why}")
        self._lock.end(self._error)
        # The old task may still run, so it keeps its callbacks, which refer to this object: to
        # leave no cycle, this drops the task.
        self._task = OrderedTask.ended()
        self._take_back()
        self.staged = {}
        self.asked = ()
        self._end()

    def _end(self) -> None:
        # First the flag, then the future: `ended` makes the future, then reads the flag.
        self._is_over = True
        if self._ended is not None:
            self._ended._settle(None, None)

    @property
    def ended(self) -> Future[None]:
        """A future, settled when the pass has committed or aborted; made for the first to ask."""
        with self.context.lock:
            if self._ended is None:
                self._ended = Future()
        if self._is_over:
            self._ended._settle(None, None)
        return self._ended

    @property
    def has_loans(self) -> bool:
        """Whether some gradients of this local pass are known only at its commit."""
        return bool(self._loans)

    def _given_back(self) -> dict[Any, Any]:
        """Return the gradients that the other framework has made of the context's and this pass's.

        The thread that runs the local pass and the one that ends it may both call this.
        """
        found: dict[Any, Any] = {}
        while self._loans:
            with suppress(KeyError):
                found.update(self._loans.popitem()[1].give_back())
        return found

    def _take_back(self) -> None:
        """Put every retained gradient back as it was; may be called by both, as `_given_back`."""
        self._given_back()
        while self._kept:
            with suppress(IndexError):
                self._kept.pop()()

    def _forget_spent(self) -> None:
        """Drop the sends that ran and can't run again: later passes need not count them."""
        context, done = self.context, self._task.done
        for send in list(context.sends.values()):
            if send in done:
                context.spent[send.message_id] = send
                context.sends.pop(send.message_id, None)
