"""Step 6 of a pass, the search: find which waiting sends are live, on all workers.

A call whose result was not used sends no gradient back, and nodes that wait for one would wait for
ever. So every worker with waiting nodes marks all nodes that those reach, and asks the other end of
each boundary to do the same. A send that the search does not reach was not used, and the pass goes
on without it. ``distributed/README.md`` proves that this is exact.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from telegrad.distributed.contexts.context import Contexts
from telegrad.distributed.contexts.message_nodes import RecvNode
from telegrad.distributed.passes.local_pass import LocalPass
from telegrad.distributed.passes.plan import PassPlan, as_plan
from telegrad.distributed.passes.report import Report
from telegrad.distributed.passes.request import PassRequest, PassRequests
from telegrad.errors import GradientError
from telegrad.rpc.calls.service import ServiceRequest
from telegrad.rpc.worker import Worker

SEARCH: Final = "autograd.search"
UNUSED: Final = "autograd.unused"


class LiveSearch:
    """One worker's part in the searches of all passes."""

    def __init__(
        self,
        worker: Worker,
        contexts: Contexts,
        requests: PassRequests,
        find_local_pass: Callable[[Any], LocalPass],
    ) -> None:
        self._worker = worker
        self._contexts = contexts
        self._requests = requests
        self._find_local_pass = find_local_pass
        worker.register_service(SEARCH, requests.handler(self._on_search))
        worker.register_service(UNUSED, self._on_unused)

    def run(self, local_pass: LocalPass, waiting: list[str], report: Report) -> None:
        """Have every worker with waiting nodes mark the nodes that those reach."""
        own = self._worker.name
        body = [local_pass.plan, None]
        requests = [self._requests.ask(x, SEARCH, body) for x in waiting if x != own]
        self._search(local_pass, None, report, None, requests)

    def unused_calls(
        self, local_pass: LocalPass, waiting: list[str], report: Report
    ) -> GradientError:
        """Return the error for a pass in which some calls were not used, with a list of them."""
        # After the search, since a live send was used: it only waits for an unused one.
        self.run(local_pass, waiting, report)
        plan, own = local_pass.plan, self._worker.name
        asked = {
            name: self._worker.send_service(name, UNUSED, plan) for name in waiting if name != own
        }
        lines = []
        for name in waiting:
            found = self._list_unused(plan) if name == own else asked[name].wait()[0]
            try:
                lines += [f"  message {ident} from {name!r} to {peer!r}" for ident, peer in found]
            except (TypeError, ValueError) as error:
                raise asked[name].malformed(error) from error
        listing = "\n".join(lines)
        return GradientError(
            "expected every recorded message to take part in the pass, since mode='fast', but "
            f"these were not used in computing the roots:\n{listing}\nuse mode='smart', which is "
            "exact for such programs too (and for checkpoints of PyTorch: what those call again in "
            "the backward pass is not used)"
        )

    def _search(
        self,
        local_pass: LocalPass,
        message_ids: list[int] | None,
        report: Report,
        asker: str | None,
        requests: list[PassRequest],
    ) -> list[int]:
        """Mark the live nodes here, and ask the other end of each boundary to do the same.

        Return the messages whose other end the asker has, if nothing else is under way: the asker
        continues there when it has the answer, as with gradients.
        """
        report.change(self._worker.name, 0)
        riding: list[int] = []
        found = local_pass.discover(message_ids)
        while True:
            by_peer: dict[str, list[int]] = {}
            for recv in found:
                by_peer.setdefault(recv.peer, []).append(recv.message_id)
            if asker is not None:
                riding.extend(by_peer.pop(asker, ()))
                if riding and (by_peer or requests):
                    by_peer[asker], riding = riding, []
            for peer, ids in by_peer.items():
                requests.append(self._requests.ask(peer, SEARCH, [local_pass.plan, ids]))
            if not requests:
                return riding
            found = self._requests.take_next(requests).read(
                partial(self._found_by, local_pass, report)
            )

    def _found_by(
        self, local_pass: LocalPass, report: Report, frm: str, answer: Any, _: list[Any]
    ) -> list[RecvNode]:
        waiting, workers, ids = answer
        report.merge(waiting, workers)
        return local_pass.discover(ids) if ids else []

    def _on_search(self, request: ServiceRequest) -> None:
        raw_plan, message_ids = request.header
        report = Report()
        riding = self._search(
            self._find_local_pass(raw_plan), message_ids, report, request.frm.name, []
        )
        request.reply([report.waiting, list(report.workers), riding])

    def _on_unused(self, request: ServiceRequest) -> None:
        request.reply(self._list_unused(as_plan(request.header)))

    def _list_unused(self, plan: PassPlan) -> list[list[Any]]:
        local_pass = self._contexts.get(plan.context_id).passes[plan.pass_id]
        return [[send.message_id, send.peer] for send in local_pass.unused()]
