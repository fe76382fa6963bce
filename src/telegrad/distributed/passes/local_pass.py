"""The local pass: one worker's state in a distributed pass. It decides, and sends nothing.

It is made on first contact: at the root, when the pass starts; on another worker, at the first
request of the pass. It counts dependencies once, from the roots and from every send of the context.
Then it is fed gradients, runs ready nodes, and collects departures, which the coordinator sends.

If inputs were chosen, a node runs only if it leads to one of them here or to a recv node, behind
which one may lie. To know which recv nodes lead to no input would take a message for each. But one
that arrived before every input was made leads to none, which a root that has all inputs can see.

Gradients are staged here; the commit adds them to the context's.
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
"""A message id, and the gradient (or None) of each tensor of that message."""


_NOTHING: Final = nullcontext()
_by_path = attrgetter("path")
# A local pass pauses to let departures be sent, so that other workers can work on them while it
# runs the rest: when it has this many, or after this many seconds. With smaller numbers, messages
# cost more than is gained.
_MOST: Final = 32
_LONGEST: Final = 0.0005
# While this many last requests are all open, it does not pause because of time: each occupies a
# thread of the asked worker, where a further one would only wait.
_AT_ONCE: Final = 8


Departure = tuple[RecvNode, Sequence[Any]]
"""A gradient to send to the peer of its recv node."""

Departures = dict[str, list[Departure]]
"""The departures of a local pass, by destination."""


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
    """Nodes whose gradient was requested, each with the name that it is captured under."""
    asked: tuple[Future[Any], ...] = ()
    """The answers to the most recent requests."""
    _wanted: dict[int, int] = {}
    """References whose gradient was requested, each with the one that it is captured under."""
    _lock: FutureLock = msgspec.field(default_factory=FutureLock)
    _region_pool: RegionPool | None = None
    _departures: Departures = {}
    _kept: list[Callable[[], None]] = []
    """Functions, each of which undoes one `retain_grad` of this pass."""
    _loans: dict[Any, Any] = {}
    """Gradients of this pass lent to another framework: see ``Framework.completed``."""
    _foreign_leaves: dict[Any, Any] = {}
    """See ``Cut.leaves``."""
    _first_input: int = -1
    """The key of the oldest input, if all inputs are here: older recv nodes lead to none."""
    _reported: int = 0
    """The number of waiting nodes last reported to the root."""
    _counted: bool = False
    _error: BaseException | None = None
    _ended: Future[None] | None = None
    _is_over: bool = False
    # Set by __post_init__.
    point: ProgramPoint = None  # type: ignore[assignment]
    """The point for calls by hooks and rules: after all gradients of the pass."""
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

    # Inputs of ``grad`` that are here.

    def want(self, node: Any, reference: int) -> None:
        """Capture the gradient of a node for a reference; several may refer to one node."""
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
                    # That pass's outcome may reach this worker later than this pass. Whether this
                    # one raises for sends that the other has freed must not depend on the timing.
                    local_pass._forget_spent()
        # A copy in one step: handlers of this context may still add to it.
        sends = list(self.context.sends.values())
        if len(sends) > 1:
            sends.sort(key=_by_path)
        entries = [*roots, *sends]
        if plan.targets is not None and roots and not plan.targets:
            # Leaves, and inputs in another framework's graph, have key -1: older than all nodes.
            self._first_input = min((node.key for node in self.targets), default=-1)
        if not frameworks.known:
            task.count(entries)
            return
        is_plain = plan.targets is None and not plan.check_nan
        found = frameworks.cut(entries, plan.keep_graph, self.targets, is_plain)
        task.joined, self._foreign_leaves, pieces = found
        task.count(entries)
        if task.skipped:
            for piece in pieces:
                piece.leave_out(task.skipped)
        # Not in a recorded pass: the keys of nodes made in parallel would depend on timing.
        if len(pieces) > 1 and not plan.recorded:
            at_once = frameworks.at_once()
            if at_once > 1 and all(each.is_apart for each in pieces):
                pool = RegionPool(self._host, self._pace, set(pieces), at_once)
                self._region_pool = task.pool = pool

    def _is_goal(self, node: Any) -> bool:
        """Tell whether a node is an input, or a recv node that may lead to one."""
        if node in self.targets:
            return True
        is_recv = node.is_boundary and node not in self._task.joined
        return is_recv and node.key > self._first_input

    # Steps 2 and 3: run, and collect departures.

    def start(self, roots: dict[Any, Any]) -> tuple[Departures, int]:
        """Run from the roots; return departures, and the change in the number of waiting nodes."""
        # Without the lock: no other thread can run this pass before its first departure.
        self._count(roots)
        for root, cotangent in roots.items():
            self._task.feed(root, cotangent)
        return self._run()

    def receive(self, feeds: Iterable[Feed]) -> tuple[Departures, int]:
        """Run from the sends that these gradients belong to; return as ``start`` does."""
        with self._lock:
            if not self._counted:
                self._count()
            if self._task.live:
                # There was a search. Gradients arrive only after all searches have ended, so these
                # are the first since then.
                self._task.drop_dead()
            for message_id, parts in feeds:
                self._task.feed(self._send_of(message_id), Bundle(parts))
            return self._run()

    def go_on(self) -> tuple[Departures, int]:
        """Continue after a pause; if only other threads have work, wait for one of them first."""
        if self._region_pool is not None and not self._task.ready:
            self._region_pool.wait()
        with self._lock:
            return self._run()

    def _run(self) -> tuple[Departures, int]:
        if self._error is not None:
            raise self._error
        task, clock = self._task, self._host.now
        try:
            # Whether other workers are still working on all recent requests.
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
                # Now, since users may read them as soon as the root's call has returned.
                self._kept += keep_retained(task.retained)
        except BaseException as error:
            self._error = error
            raise
        if self._error is not None:
            # The pass was aborted meanwhile: send nothing more.
            self._take_back()
            raise self._error
        departures, self._departures = self._departures, {}
        waiting = len(task.sums)
        change, self._reported = waiting - self._reported, waiting
        return departures, change

    def note_asked(self, answer: Future[Any]) -> None:
        """Note the latest request; if two threads do so at once, one request may be missed."""
        self.asked = (*self.asked, answer)[-_AT_ONCE:]

    @property
    def is_paused(self) -> bool:
        """Whether there is more to run, which departures should not wait for."""
        if self._task.ready or (self._region_pool is not None and self._region_pool.under_way > 0):
            return True
        return bool(self._loans) and any(each.is_waiting for each in [*self._loans.values()])

    def size_of(self, message_id: int) -> int | None:
        """Return the number of tensors in a message from here; None if the message is unknown."""
        send = self.context.sends.get(message_id)
        return None if send is None else len(send.edges)

    def _send_of(self, message_id: int) -> SendNode:
        send = self.context.sends.get(message_id)
        if send is None:
            if self._error is not None:
                # The context was released, which removed its sends.
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
            # A call to this worker itself: the send node is here, too. A recorded pass still sends
            # a message, so that the next order has the same boundaries wherever the calls went.
            # The gradient is copied unless it is read-only, as if it had been sent.
            parts = [frameworks.copied(part) for part in recv.parts_of(cotangent)]
            self._task.feed(self._send_of(recv.message_id), Bundle(parts))
            return False
        departure = (recv, recv.parts_of(cotangent))
        self._departures.setdefault(recv.peer, []).append(departure)
        return True

    def _deliver(self, node: Any, gradient: Any, is_alone: bool) -> None:
        leaf = self._foreign_leaves.get(node) if self._foreign_leaves else None
        if leaf is None and not isinstance(gradient, Tensor):
            gradient = wrap(own(gradient, is_alone))
        if self.targets and node in self.targets:
            self.captured[self.targets[node]] = gradient
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
        """Mark nodes that these messages (or waiting nodes) reach; return new boundaries."""
        with self._lock:
            if not self._counted:
                self._count()
            if message_ids is None:
                return self._follow_own(self._task.discover(list(self._task.sums)))
            sends = [self._send_of(message_id) for message_id in message_ids]
            return self._follow_own(self._task.discover(sends))

    def _follow_own(self, boundaries: list[Any]) -> list[RecvNode]:
        """Continue at the other end of calls to this worker; return boundaries to others."""
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
        """Return the sends that will get no gradient; called after the search."""
        task = self._task
        sends = list(self.context.sends.values())
        used = (task.done, task.skipped, task.live)
        return [send for send in sends if not any(send in nodes for nodes in used)]

    # Step 7: all or nothing.

    def commit(self) -> None:
        """Make the staged gradients visible, unless the context was released with the commit."""
        # All requests have been answered, so no thread runs this pass any more.
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
        """Drop the staged gradients; threads that still run the pass get an error with `why`."""
        # Such a thread is not waited for: gradients that it stages are never read. The new error
        # also replaces one whose traceback refers back to this object, which would be a cycle.
        self._error = PassAborted(f"pass {self.plan.pass_id} of context {self.context.id} {why}")
        self._lock.end(self._error)
        # The old task may still run, so it keeps its callbacks, which refer to this object. Drop
        # the task, to leave no cycle.
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
        """A future, settled when the pass has committed or aborted; made on first use."""
        with self.context.lock:
            if self._ended is None:
                self._ended = Future()
        if self._is_over:
            self._ended._settle(None, None)
        return self._ended

    @property
    def has_loans(self) -> bool:
        """Whether some gradients of this local pass become known only at its commit."""
        return bool(self._loans)

    def _given_back(self) -> dict[Any, Any]:
        """End all loans; return the gradients that the other framework made of those lent to it.

        The thread that runs the local pass and the thread that ends it may both call this.
        """
        found: dict[Any, Any] = {}
        while self._loans:
            with suppress(KeyError):
                found.update(self._loans.popitem()[1].give_back())
        return found

    def _take_back(self) -> None:
        """Undo every `retain_grad` of this pass; both threads may call this, as `_given_back`."""
        self._given_back()
        while self._kept:
            with suppress(IndexError):
                self._kept.pop()()

    def _forget_spent(self) -> None:
        """Remove the sends that ran and can't run again, so that later passes don't count them."""
        context, done = self.context, self._task.done
        for send in list(context.sends.values()):
            if send in done:
                context.spent[send.message_id] = send
                context.sends.pop(send.message_id, None)
