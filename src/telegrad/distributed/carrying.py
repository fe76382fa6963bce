"""Carrying a pass over the wire: who is asked what, and when a question is answered.

Every question (gradients for some messages, a search for live sends, "run on") is answered when
all that it set off, here and further on, has ended; so when the root has its answers, the whole
system is at rest. Gradients for one worker travel together. Gradients for the asker ride on the answer,
unless something else is still under way.

A question's thread sends its own questions, then waits for their answers one by one and runs what
they bring. Waiting goes through futures, so threads grow on demand and virtual time can pass.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
import numpy as np

from telegrad.distributed.contexts import Context
from telegrad.distributed.passes import Departure, Feed, Part, Plan
from telegrad.distributed.recording import Recorder
from telegrad.errors import ContextError, GradientError, InternalError, PassAborted
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.service import ServiceRequest
from telegrad.tensors import Tensor, wrap

__all__ = ["Carrier"]

GRADIENTS: Final = "autograd.gradients"
SEARCH: Final = "autograd.search"
RESUME: Final = "autograd.resume"
UNUSED: Final = "autograd.unused"
CAPTURED: Final = "autograd.captured"
SETTLE: Final = "autograd.settle"
RELEASE: Final = "autograd.release"

_NEVER: Final = 30 * 24 * 3600.0
"""As good as no deadline: a worker that dies or stops is found by its heartbeat, and a pass may be long."""


class Report:
    """What an answer tells besides gradients: who took part, and how the number waiting changed."""

    __slots__ = ("waiting", "workers")

    def __init__(self) -> None:
        self.waiting: dict[str, int] = {}
        self.workers: dict[str, None] = {}

    def change(self, worker: str, by: int) -> None:
        self.workers[worker] = None
        if by:
            self.waiting[worker] = self.waiting.get(worker, 0) + by

    def merge(self, waiting: dict[str, int], workers: list[str]) -> None:
        for worker in workers:
            self.workers[worker] = None
        for worker, by in waiting.items():
            self.change(worker, by)

    def who_waits(self) -> list[str]:
        return [worker for worker, count in self.waiting.items() if count]


class Carrier:
    """One worker's end of every pass."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._worker = worker = recorder.worker
        worker.register_service(GRADIENTS, self._on_gradients)
        worker.register_service(SEARCH, self._on_search)
        worker.register_service(RESUME, self._on_resume)
        worker.register_service(UNUSED, self._on_unused)
        worker.register_service(CAPTURED, self._on_captured)
        worker.register_service(SETTLE, self._on_settle, inline=True)
        worker.register_service(RELEASE, self._on_release, inline=True)
        worker.on_worker_lost(self._on_lost)

    # The root.

    def run(
        self,
        context: Context,
        roots: dict[Any, Any],
        plan: Plan,
        targets: dict[Any, Any],
        mode: str,
    ) -> Part:
        """Runs a pass to its end everywhere; the part has what was captured here."""
        part = Part(context, plan, self._worker.name)
        part.targets.update(targets)
        context.passes[plan.pass_id] = part
        report = Report()
        try:
            self._carry(part, part.start(roots), report, 1, None)
            waiting = report.who_waits()
            if waiting and mode == "fast":
                raise self._unused_calls(plan, waiting)
            if waiting:
                self._correct(part, waiting, report)
        except BaseException:
            self._settle_everywhere(context, plan, report, False)
            raise
        self._settle_everywhere(context, plan, report, True)
        return part

    def _correct(self, part: Part, waiting: list[str], report: Report) -> None:
        """Step 6: find what is live, everywhere; only then run on from the waiting nodes."""
        plan = part.plan
        self._ask_each(
            waiting,
            lambda: self._search(part, None, report),
            lambda name: self._worker.send_service(name, SEARCH, [plan, None], timeout=_NEVER),
            report,
        )
        self._ask_each(
            waiting,
            lambda: self._carry(part, part.resume(), report, 2, None),
            lambda name: self._worker.send_service(name, RESUME, plan, timeout=_NEVER),
            report,
        )
        if report.who_waits():
            raise InternalError(f"nodes still wait after the correction: {report.waiting}")

    def _ask_each(
        self,
        names: Iterable[str],
        here: Callable[[], None],
        there: Callable[[str], Any],
        report: Report,
    ) -> None:
        own = self._worker.name
        calls = [there(name) for name in names if name != own]
        if own in names:
            here()
        for call in calls:
            (waiting, workers), _ = call.wait()
            report.merge(waiting, workers)

    def _unused_calls(self, plan: Plan, waiting: list[str]) -> GradientError:
        lines = []
        for name in waiting:
            if name == self._worker.name:
                found = self._list_unused(self._recorder.contexts.get(plan.context_id), plan)
            else:
                found, _ = self._worker.ask_service(name, UNUSED, plan)
            lines += [f"  message {ident} from {name!r} to {peer!r}" for ident, peer in found]
        listing = "\n".join(lines)
        return GradientError(
            "expected every recorded message to take part in the pass, since mode='fast', but these "
            f"were not used in computing the roots:\n{listing}\nuse mode='smart', which is exact "
            "for such programs too"
        )

    # What was set off, to its end.

    def _carry(
        self,
        part: Part,
        ran: tuple[list[Departure], int],
        report: Report,
        phase: int,
        asker: str | None,
    ) -> list[Departure]:
        """Sends what leaves, runs what comes back, until nothing is under way.

        Returns the gradients that may ride on the answer to `asker`.
        """
        own = self._worker.name
        departures, change = ran
        report.change(own, change)
        riding: list[Departure] = []
        calls: list[Any] = []
        while True:
            for to, group in _by_destination(departures).items():
                if to == asker:
                    riding.extend(group)
                else:
                    calls.append(self._send(part, to, group, phase))
            if calls and riding and asker is not None:
                # Something else is under way: don't let the asker wait for it.
                calls.append(self._send(part, asker, riding, phase))
                riding = []
            if not calls:
                return riding
            (waiting, workers, entries), arrays = calls.pop(0).wait()
            report.merge(waiting, workers)
            departures = []
            if entries:
                feeds = self._unpack(part, entries, arrays)
                departures, change = part.receive(feeds, phase)
                report.change(own, change)

    def _send(self, part: Part, to: str, group: list[Departure], phase: int) -> Any:
        entries, arrays = self._pack(part, to, group)
        return self._worker.send_service(
            to, GRADIENTS, [part.plan, phase, entries], arrays, timeout=_NEVER
        )

    def _pack(
        self, part: Part, to: str, group: list[Departure]
    ) -> tuple[list[list[Any]], list[Any]]:
        """``[message id, places, extra]`` for each gradient, and the arrays of those places."""
        entries: list[list[Any]] = []
        arrays: list[Any] = []
        for departure in group:
            parts = list(departure.parts)
            places = [i for i, p in enumerate(parts) if p is not None]
            present = [parts[i] for i in places]
            extra = None
            if part.plan.recorded:
                path = (1 << 62, part.plan.ordinal, *departure.recv.path)
                extra = self._recorder.give(part.context, self._worker.find(to).info, present, path)
            entries.append([departure.recv.message_id, len(parts), places, extra])
            arrays.extend(p.array if isinstance(p, Tensor) else np.asarray(p) for p in present)
        return entries, arrays

    def _unpack(
        self, part: Part, entries: list[list[Any]], arrays: list[Any], frm: WorkerInfo | None = None
    ) -> list[Feed]:
        feeds: list[Feed] = []
        position = 0
        for message_id, size, places, extra in entries:
            present: list[Any] = arrays[position : position + len(places)]
            position += len(places)
            if part.plan.recorded:
                present = [wrap(array) for array in present]
                if extra is not None:
                    self._recorder.take(part.context, extra, present)
            parts: list[Any] = [None] * size
            for place, value in zip(places, present):
                parts[place] = value
            feeds.append((message_id, parts))
        return feeds

    def _search(self, part: Part, message_ids: list[int] | None, report: Report) -> None:
        """Marks what is live here, and asks the other end of each boundary to do the same."""
        report.change(self._worker.name, 0)
        boundaries = part.discover(message_ids)
        by_peer: dict[str, list[int]] = {}
        for recv in boundaries:
            by_peer.setdefault(recv.peer, []).append(recv.message_id)
        calls = [
            self._worker.send_service(peer, SEARCH, [part.plan, ids], timeout=_NEVER)
            for peer, ids in by_peer.items()
        ]
        for call in calls:
            (waiting, workers), _ = call.wait()
            report.merge(waiting, workers)

    # What others ask.

    def _part(self, plan: Plan, frm: WorkerInfo) -> Part:
        """This worker's part, made on first contact."""
        context = self._recorder.contexts.get(plan.context_id)
        with context.lock:
            if plan.pass_id in context.settled:
                raise PassAborted(f"pass {plan.pass_id} of context {context.id} has ended already")
            part = context.passes.get(plan.pass_id)
            if part is None:
                part = context.passes[plan.pass_id] = Part(context, plan, self._worker.name)
                self._find_targets(part, plan)
        return part

    def _find_targets(self, part: Part, plan: Plan) -> None:
        for owner, reference in plan.targets or ():
            if owner == self._worker.id:
                value = self._worker.references.value(reference).value()
                part.targets[value.grad_fn or value] = reference

    def _on_gradients(self, request: ServiceRequest) -> None:
        raw_plan, phase, entries = request.header
        plan = msgspec.convert(raw_plan, Plan)
        part = self._part(plan, request.frm)
        report = Report()
        feeds = self._unpack(part, entries, request.arrays, request.frm)
        riding = self._carry(part, part.receive(feeds, phase), report, phase, request.frm.name)
        answer, arrays = self._pack(part, request.frm.name, riding) if riding else ([], [])
        request.reply([report.waiting, list(report.workers), answer], arrays)

    def _on_search(self, request: ServiceRequest) -> None:
        raw_plan, message_ids = request.header
        part = self._part(msgspec.convert(raw_plan, Plan), request.frm)
        report = Report()
        self._search(part, message_ids, report)
        request.reply([report.waiting, list(report.workers)])

    def _on_resume(self, request: ServiceRequest) -> None:
        part = self._part(msgspec.convert(request.header, Plan), request.frm)
        report = Report()
        self._carry(part, part.resume(), report, 2, None)
        request.reply([report.waiting, list(report.workers)])

    def _on_unused(self, request: ServiceRequest) -> None:
        plan = msgspec.convert(request.header, Plan)
        context = self._recorder.contexts.get(plan.context_id)
        request.reply(self._list_unused(context, plan))

    def _list_unused(self, context: Context, plan: Plan) -> list[list[Any]]:
        part = context.passes[plan.pass_id]
        return [[send.message_id, send.peer] for send in part.unused()]

    # The end of a pass, and of a context.

    def _settle_everywhere(
        self, context: Context, plan: Plan, report: Report, succeeded: bool
    ) -> None:
        names = list(report.workers) if succeeded else list(context.known)
        self._settle_here(context, plan.pass_id, succeeded)
        for name in names:
            if name != self._worker.name:
                self._tell(name, SETTLE, [context.id, plan.pass_id, succeeded])

    def _settle_here(self, context: Context, pass_id: int, succeeded: bool) -> bool:
        with context.lock:
            if pass_id in context.settled:
                return False
            context.settled.add(pass_id)
            part = context.passes.pop(pass_id, None)
        if part is not None:
            part.settle(succeeded)
        return True

    def _on_settle(self, request: ServiceRequest) -> None:
        context_id, pass_id, succeeded = request.header
        context = self._recorder.contexts.find(context_id)
        if context is None:
            return
        is_news = self._settle_here(context, pass_id, succeeded)
        if is_news and not succeeded:
            for name in list(context.known):
                if name not in (self._worker.name, request.frm.name):
                    self._tell(name, SETTLE, [context_id, pass_id, False])

    def release(self, context_id: int, frm: str | None = None) -> bool:
        """Forgets a context here and on every worker it reached from here."""
        context = self._recorder.contexts.drop(context_id)
        if context is None:
            return False
        for part in list(context.passes.values()):
            part.settle(False)
        for name in list(context.known):
            if name not in (self._worker.name, frm):
                self._tell(name, RELEASE, context_id)
        return True

    def _on_release(self, request: ServiceRequest) -> None:
        self.release(request.header, request.frm.name)

    def _tell(self, name: str, what: str, header: Any) -> None:
        try:
            self._worker.notify_service(name, what, header)
        except Exception:
            # It is lost: what it had of the context went with it.
            return

    def _on_lost(self, who: WorkerInfo, error: BaseException) -> None:
        for context in self._recorder.contexts.all():
            if context.home_id == who.id:
                self.release(context.id)
                continue
            for pass_id in list(context.passes):
                if pass_id >> 48 == who.id:
                    self._settle_here(context, pass_id, False)

    # Gradients asked for by reference.

    def captured_at(self, plan: Plan, owner: WorkerInfo, reference: int) -> Tensor | None:
        """The gradient that a worker captured for a reference of its own, fetched."""
        found, arrays = self._worker.ask_service(owner, CAPTURED, [plan, reference])
        return wrap(arrays[0]) if found else None

    def _on_captured(self, request: ServiceRequest) -> None:
        raise ContextError("not yet")


def _by_destination(departures: Iterable[Departure]) -> dict[str, list[Departure]]:
    groups: dict[str, list[Departure]] = {}
    for departure in departures:
        groups.setdefault(departure.to, []).append(departure)
    return groups
