"""Carrying a pass over the wire: who is asked what, and when a question is answered.

Every question (gradients for some messages, or for none: "run on"; a search for live sends) is
answered when all that it set off, here and further on, has ended; so when the root has its answers,
the whole system is at rest. Gradients for one worker that are ready at about the same time travel
together. Gradients for the asker ride on the answer, unless something else is still under way or
the rest takes its time: stages of a pipeline work side by side only if each hands on what it has.

A question's thread asks its own questions, then waits for their answers one by one and runs what
they bring; the first failure that is known ends it, whoever is still at work. Waiting goes through
futures, so threads grow on demand and virtual time can pass.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from telegrad.distributed import frameworks
from telegrad.distributed.contexts.context import ENCLOSING_PASSES, Context
from telegrad.distributed.contexts.leases import RELEASED
from telegrad.distributed.contexts.recorder import Recorder
from telegrad.distributed.passes.commit import PassCommit
from telegrad.distributed.passes.gradient_codec import GradientCodec
from telegrad.distributed.passes.local_pass import Departure, Departures, LocalPass, PassPlan
from telegrad.distributed.passes.region_pool import Pace
from telegrad.distributed.passes.report import Report
from telegrad.distributed.passes.request import PassRequest, PassRequests
from telegrad.errors import GradientError, InternalError, PassAborted
from telegrad.rpc.calls.service import ServiceRequest

__all__ = ["Carrier"]

GRADIENTS: Final = "autograd.gradients"
SEARCH: Final = "autograd.search"
UNUSED: Final = "autograd.unused"
# Seconds that gradients for the asker wait for the rest, to ride on the answer. Riding saves a
# message and, at the asker, a thread; it is worth more than a place in the next frame.
_RIDE_WITHIN: Final = 0.001


class Carrier:
    """One worker's end of every pass."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._worker = worker = recorder.worker
        self._questions = PassRequests(worker)
        self._parcels = GradientCodec(recorder)
        self._settling = PassCommit(recorder)
        self._pace = Pace()
        worker.register_service(GRADIENTS, self._work_on(self._on_gradients))
        worker.register_service(SEARCH, self._work_on(self._on_search))
        worker.register_service(UNUSED, self._on_unused)

    # The root.

    def run(
        self,
        context: Context,
        roots: dict[Any, Any],
        plan: PassPlan,
        targets: dict[Any, Any] | None,
        mode: str,
        finish: Callable[[LocalPass], None] | None,
    ) -> None:
        """Runs a pass to its end everywhere; `finish` is called before it is settled."""
        part = self._new_part(context, plan)
        if targets:
            part.targets.update(targets)
        context.passes[plan.pass_id] = part
        report = Report()
        try:
            self._carry(part, partial(part.start, roots), report, None, [])
            waiting = report.who_waits()
            if waiting and mode == "fast":
                raise self._unused_calls(part, waiting, report)
            if waiting:
                self._correct(part, waiting, report)
            if finish is not None:
                finish(part)
        except BaseException:
            self._settling.settle_everywhere(context, plan.pass_id, context.known, False)
            raise
        self._settling.settle_everywhere(context, plan.pass_id, report.workers, True)

    def _correct(self, part: LocalPass, waiting: list[str], report: Report) -> None:
        """Step 6: finds what is live, everywhere; only then runs on from the waiting nodes."""
        self._find_live(part, waiting, report)
        own = self._worker.name
        # No gradient comes, but whoever waits forgets what will never come, and goes on.
        questions = [self._send(part, x, [], False) for x in waiting if x != own]
        self._carry(part, partial(part.receive, ()), report, None, questions)
        if report.who_waits():
            raise InternalError(f"nodes still wait after the correction: {report.waiting}")

    def _find_live(self, part: LocalPass, waiting: list[str], report: Report) -> None:
        """Step 6, the search: every worker with waiting nodes marks what those reach."""
        own = self._worker.name
        body = [part.plan, None]
        questions = [self._questions.ask(x, SEARCH, body) for x in waiting if x != own]
        self._search(part, None, report, None, questions)

    def _unused_calls(self, part: LocalPass, waiting: list[str], report: Report) -> GradientError:
        # After the search: a send that is live was used, and only waits for another one.
        self._find_live(part, waiting, report)
        plan, own = part.plan, self._worker.name
        asked = {
            name: self._worker.send_service(name, UNUSED, plan) for name in waiting if name != own
        }
        lines = []
        for name in waiting:
            found = self._list_unused(plan) if name == own else asked[name].wait()[0]
            lines += [f"  message {ident} from {name!r} to {peer!r}" for ident, peer in found]
        listing = "\n".join(lines)
        return GradientError(
            "expected every recorded message to take part in the pass, since mode='fast', but "
            f"these were not used in computing the roots:\n{listing}\nuse mode='smart', which is "
            "exact for such programs too (and for checkpoints of PyTorch: what those call again in "
            "the backward pass is not used)"
        )

    # What was set off, to its end.

    def _carry(
        self,
        part: LocalPass,
        run: Callable[[], tuple[Departures, int]],
        report: Report,
        asker: str | None,
        questions: list[PassRequest],
    ) -> list[Departure]:
        """Runs, sends what leaves, runs what comes back, until nothing is under way.

        `questions` are under way already. Returns the gradients that may ride on the answer to
        `asker`.
        """
        own, now = self._worker.name, self._worker.host.now
        began = now()
        leaving, change = run()
        report.change(own, change)
        riding: list[Departure] = []
        while True:
            # Read once, since another thread may change it at any time. With `waits`, below, this
            # thread promises to read the answer itself, so it must not run on before that.
            is_paused = part.is_paused
            if asker is not None:
                riding.extend(leaving.pop(asker, ()))
                if riding and (
                    leaving or questions or (is_paused and now() - began >= _RIDE_WITHIN)
                ):
                    # Something else is under way, or takes long: don't let the asker wait for it.
                    leaving[asker], riding = riding, []
            if leaving:
                waits = len(leaving) == 1 and not questions and not is_paused
                for to, group in leaving.items():
                    questions.append(self._send(part, to, group, waits))
            if is_paused and not any(each.answer._done for each in questions):
                # An answer that has come goes first: it may be a failure, or work for others.
                leaving, change = part.go_on()
                report.change(own, change)
                continue
            if not questions:
                return riding
            (waiting, workers, entries), arrays = self._questions.take_next(questions).wait()
            report.merge(waiting, workers)
            leaving = {}
            if entries:
                feeds = self._parcels.unpack(part, entries, arrays)
                leaving, change = part.receive(feeds)
                if change:
                    report.change(own, change)

    def _send(self, part: LocalPass, to: str, group: list[Departure], waits: bool) -> PassRequest:
        entries, arrays = self._parcels.pack(part, to, group)
        body = [part.plan, entries]
        question = self._questions.ask(to, GRADIENTS, body, arrays, waits=waits)
        part.asked.append(question.answer)
        return question

    def _search(
        self,
        part: LocalPass,
        message_ids: list[int] | None,
        report: Report,
        asker: str | None,
        questions: list[PassRequest],
    ) -> list[int]:
        """Marks what is live here, and asks the other end of each boundary to do the same.

        Returns the messages whose other end the asker has, where nothing else is under way: it
        goes on there when it has its answer, as with gradients.
        """
        report.change(self._worker.name, 0)
        riding: list[int] = []
        found = part.discover(message_ids)
        while True:
            by_peer: dict[str, list[int]] = {}
            for recv in found:
                by_peer.setdefault(recv.peer, []).append(recv.message_id)
            if asker is not None:
                riding.extend(by_peer.pop(asker, ()))
                if riding and (by_peer or questions):
                    by_peer[asker], riding = riding, []
            for peer, ids in by_peer.items():
                questions.append(self._questions.ask(peer, SEARCH, [part.plan, ids]))
            if not questions:
                return riding
            (waiting, workers, ids), _ = self._questions.take_next(questions).wait()
            report.merge(waiting, workers)
            found = part.discover(ids) if ids else []

    # What others ask.

    def _part(self, raw_plan: Any) -> LocalPass:
        """This worker's part, made on first contact."""
        plan = msgspec.convert(raw_plan, PassPlan)
        # For good: the handler of a question has contextvars of its own.
        ENCLOSING_PASSES.set((*plan.served, plan.pass_id))
        context = self._recorder.contexts.get(plan.context_id)
        part: LocalPass | None = context.passes.get(plan.pass_id)
        if part is None:
            part = self._new_part(context, plan)
            if plan.targets:
                # Without the lock: this may wait for a value that is still under way.
                self._find_targets(part, plan.targets)
        with context.lock:
            if context.released:
                raise PassAborted(f"pass {plan.pass_id} of context {context.id} {RELEASED}")
            if plan.pass_id in context.settled:
                raise PassAborted(f"pass {plan.pass_id} of context {context.id} has ended already")
            first: LocalPass = context.passes.setdefault(plan.pass_id, part)
        return first

    def _new_part(self, context: Context, plan: PassPlan) -> LocalPass:
        observer = self._worker.observer
        watch = None if observer is None else observer.running
        return LocalPass(context, plan, self._worker.info, self._worker.host, self._pace, watch)

    def _find_targets(self, part: LocalPass, targets: list[tuple[int, int]]) -> None:
        for owner, reference in targets:
            if owner == self._worker.id:
                value = self._worker.references.value(reference).wait(self._questions.patience)
                part.want(frameworks.node_of_referent(value), reference)

    def _work_on(self, answer: Callable[[ServiceRequest], None]) -> Callable[..., None]:
        """The handler of a question: while it runs, the question counts as worked on."""
        working = self._questions.working

        def handle(request: ServiceRequest) -> None:
            number = request.header[0]
            working.add(number)
            try:
                answer(request)
            finally:
                working.discard(number)

        return handle

    def _on_gradients(self, request: ServiceRequest) -> None:
        raw_plan, entries = request.header[1]
        part = self._part(raw_plan)
        feeds = self._parcels.unpack(part, entries, request.arrays)
        report = Report()
        asker = request.frm.name
        riding = self._carry(part, partial(part.receive, feeds), report, asker, [])
        answer, arrays = self._parcels.pack(part, asker, riding) if riding else ([], [])
        request.reply([report.waiting, list(report.workers), answer], arrays)

    def _on_search(self, request: ServiceRequest) -> None:
        raw_plan, message_ids = request.header[1]
        report = Report()
        riding = self._search(self._part(raw_plan), message_ids, report, request.frm.name, [])
        request.reply([report.waiting, list(report.workers), riding])

    def _on_unused(self, request: ServiceRequest) -> None:
        request.reply(self._list_unused(msgspec.convert(request.header, PassPlan)))

    def _list_unused(self, plan: PassPlan) -> list[list[Any]]:
        part = self._recorder.contexts.get(plan.context_id).passes[plan.pass_id]
        return [[send.message_id, send.peer] for send in part.unused()]
