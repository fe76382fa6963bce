"""A process's part in a cluster whose workers meet by themselves: joining and leaving it.

A roster knows who is here. The workers of a world of fixed size leave together: each reports to
rank 0 when it wants to leave, and rank 0 counts (termination.py). In an open world each leaves when
its own work is done. Invariant: resources are freed, however joining or leaving ends.
"""

import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Final

from telegrad.errors import PeerError, TelegradError, UsageError
from telegrad.rpc.calls.future import Future
from telegrad.rpc.calls.service import ServiceRequest
from telegrad.rpc.driver.host import SocketHost
from telegrad.rpc.membership.board_roster import BoardRoster
from telegrad.rpc.membership.card import OPEN, Card
from telegrad.rpc.membership.rendezvous import Meeting
from telegrad.rpc.membership.roster import Came, Roster, RosterChange
from telegrad.rpc.membership.served_roster import ServedRoster
from telegrad.rpc.membership.termination import Round, TerminationDetector
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.options import Options
from telegrad.rpc.startup import begin_worker, forget, meet
from telegrad.rpc.transport import PrivateDirectory
from telegrad.rpc.wire.script import NO_NAMES, Names, defined_names, digest_of_script
from telegrad.rpc.worker import Worker

_LEAVE: Final = "telegrad.leave"
# Seconds that handlers may take when the process ends.
_LAST_MOMENT: Final = 5.0


class Membership:
    """This process's part in a world of `size` workers, or in an OPEN one, where they come and go.

    Without a rank, the roster assigns one.
    """

    def __init__(
        self,
        name: str,
        rank: int | None,
        size: int,
        options: Options,
        meeting: Meeting,
        on_start: Callable[[Worker], object],
    ) -> None:
        self._directory: PrivateDirectory | None = None
        self._lock = threading.RLock()
        self.is_open = size == OPEN
        # Made before the members are known: a quick worker may already want to leave then.
        self.leaving = TerminationDetector(size)
        """Counts the workers that want to leave; only rank 0's is used."""
        self.watchers: list[Callable[[RosterChange], object]] = []
        """Called with each change, after the worker knows of it."""
        self.launcher: str | None = None
        """The launcher that started this process, if known."""
        self._scripts: set[str] = set()
        self._names: Names = NO_NAMES
        self.roster: Roster = (
            ServedRoster(meeting)
            if meeting.board is None
            else BoardRoster(meeting.board, meeting.key, meeting.credentials)
        )
        try:
            if not options.listen and (rank == 0 or meeting.board is not None):
                raise UsageError(
                    f"expected {name!r} to join at another worker's address, since it listens "
                    "nowhere: rank 0 is where the others meet, and on a board each has to be "
                    "reached by who comes later; leave out rpc.Options(listen=False), or give it "
                    "another rank and MASTER_ADDR"
                )
            if rank is None:
                rank = self.roster.choose_rank(name)
            self.worker, self._directory = begin_worker(
                name,
                rank,
                meeting.key,
                options,
                credentials=meeting.credentials,
                towards=meeting.address,
            )
        except BaseException:
            self.roster.close()
            raise
        try:
            self._join(size, on_start)
        except BaseException:
            self.close()
            raise

    def _join(self, size: int, on_start: Callable[[Worker], object]) -> None:
        worker = self.worker
        # Done before the others know this worker, and may call it.
        joined = worker.joined = Future()
        on_start(worker)
        worker.register_service(_LEAVE, self._on_leave, inline=True)
        worker.on_worker_lost(self._on_lost)
        # Taken now: the others have defined the same names when they join.
        self._names = defined_names()
        info = worker.info
        me = Card(info.name, info.id, size, worker.address, info.incarnation, digest_of_script())
        # Before entering: a change may be reported before the answer has been handled.
        self.roster.follow(self._on_change)
        cards = self.roster.enter(worker, me, worker.options.join_timeout)
        meet(worker, cards, are_news=False)
        self._note_scripts([card.script for card in cards])
        worker.look_again = self.roster.refresh
        worker.joined = None
        joined.set_result(None)

    def _on_change(self, change: RosterChange) -> None:
        """Handle the arrival or departure of a worker."""
        if isinstance(change, Came):
            if change.card.name == self.worker.name:
                return
            self._note_scripts([change.card.script])
            meet(self.worker, [change.card])
            peer = self.worker.peers.get(change.card.name)
            # The roster may also report a worker that was lost since; that one is not back.
            if peer is None or not peer.is_gone:
                with self._lock:
                    self.leaving.returned(change.card.name)
        elif self.is_open:
            forget(self.worker, change.name, change.incarnation)
        for watcher in list(self.watchers):
            watcher(change)

    def _note_scripts(self, scripts: list[str]) -> None:
        """Send the script's functions by name for as long as all workers run that script."""
        with self._lock:
            self._scripts.update(scripts)
            is_one = len(self._scripts) == 1 and "" not in self._scripts
            self.worker.codec.script = self._names if is_one else NO_NAMES

    def _on_lost(self, who: WorkerInfo, error: BaseException) -> Callable[[], None]:
        return partial(self._note_loss, who)

    def _note_loss(self, who: WorkerInfo) -> None:
        peer = self.worker.peers.get(who.name)
        # The end of an old incarnation may be noticed only after the new one has come.
        if peer is None or peer.info.incarnation == who.incarnation:
            with self._lock:
                ended = self.leaving.lost(who.name)
            self._answer(ended)

    def _on_leave(self, request: ServiceRequest) -> None:
        with self._lock:
            for peer in self.worker.peers.all():
                if peer.lost is None:
                    # It may have been lost before: the network was cut, and has healed.
                    self.leaving.returned(peer.info.name)
            ended = self.leaving.report(request.frm.name, int(request.header), request.reply)
        self._answer(ended)

    def _answer(self, ended: Round | None) -> None:
        """Tell the workers that reported in a round whether they may leave."""
        if ended is None:
            return
        if ended.is_last:
            # Before anyone leaves: a new cluster at this place must not meet the old one.
            self.roster.close()
        for reply in ended.tokens:
            reply(ended.is_last)

    def leave(self, timeout: float) -> None:
        """Wait until all workers have finished, or the time is over.

        In an open world, wait for this worker only.
        """
        end = time.monotonic() + timeout
        if self.is_open:
            self.worker.is_quiet(timeout)
            return
        while self.worker.is_quiet(max(0.0, end - time.monotonic())):
            if self._may_go(max(0.01, end - time.monotonic())):
                return

    def _may_go(self, timeout: float) -> bool:
        """Report that this worker is quiet, wait for the others, and say whether it may leave."""
        served = self.worker.incoming.served
        try:
            is_last, _ = self.worker.ask_service(0, _LEAVE, served, timeout=timeout)
        except PeerError:
            # Rank 0 is gone, or does not answer in time: either way it is time to leave.
            return True
        return bool(is_last)

    def close(self) -> None:
        """Free everything, even if Ctrl-C interrupts this."""
        with ExitStack() as last:
            for free in (self._close_directory, self.worker.close, self.roster.close):
                last.callback(free)
            if self.is_open and not self.worker.closed:
                # The place may be gone already, or out of reach.
                with suppress(TelegradError, OSError, RuntimeError):
                    self.roster.leave()

    def end_with_process(self) -> None:
        """End without a shutdown: let the process's end close connections, but tell the peers why.

        If the others learnt of the loss now, they could fail and end before this process does, and
        launchers blame the first process that ends. So only the reason is sent: the uncaught error,
        which the others report once the connection closes. Running handlers get a moment, since
        ending a thread inside another library's code may end the process by a signal.
        """
        try:
            error = getattr(sys, "last_value", None)
            if error is not None:
                kind = type(error).__qualname__
                self.worker.losses.say(f"its program ended with {kind}: {error}")
            self.worker.incoming.takes_requests = False
            host = self.worker.host
            assert isinstance(host, SocketHost), "start_worker made it"
            host.rest(_LAST_MOMENT)
        finally:
            self._close_directory()

    def _close_directory(self) -> None:
        if self._directory is not None:
            self._directory.close()
