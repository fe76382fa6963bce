"""A process's part in a cluster whose workers met at rank 0: joining it, and leaving it.

Rank 0 keeps the meeting place and counts those who want to go (leaving.py): all report to it.
Invariant: what was opened is closed, however joining or leaving ends.
"""

import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from telegrad.errors import NotInitialized, PeerError, ProtocolViolation, WorkerLost
from telegrad.rpc.calls.future import Future
from telegrad.rpc.calls.service import ServiceRequest
from telegrad.rpc.driver.host import SocketHost
from telegrad.rpc.membership.rendezvous import Joining, Meeting, Rendezvous, join
from telegrad.rpc.membership.termination import Round, TerminationDetector
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.options import Options
from telegrad.rpc.startup import start_worker
from telegrad.rpc.transport import (
    Address,
    Identity,
    PrivateDirectory,
    parse_address,
)
from telegrad.rpc.wire.script import NO_NAMES, Names, defined_names, digest_of_script
from telegrad.rpc.worker import Worker

__all__ = ["Membership", "own_host"]

_LEAVE: Final = "telegrad.leave"
_RETURNED: Final = "telegrad.returned"
_ALIVE: Final = "telegrad.alive"
# Seconds that handlers may take when the process ends.
_LAST_MOMENT: Final = 5.0


class Membership:
    """This process's part in a cluster that met at rank 0."""

    def __init__(
        self,
        name: str,
        rank: int,
        size: int,
        options: Options,
        meeting: Meeting,
        on_start: Callable[[Worker], object],
    ) -> None:
        master, key, credentials = meeting
        self._directory: PrivateDirectory | None = None
        self._rendezvous: Rendezvous | None = None
        self.members: list[Joining] = []
        # Reentrant: what the collector frees meanwhile may find out that a worker was lost.
        self._lock = threading.RLock()
        # Before the members are known: a quick worker may leave while rank 0 still counts them.
        self._leaving = TerminationDetector(size)
        self._scripts: set[str] = set()
        self._names: Names = NO_NAMES
        if credentials is not None:
            host = options.host or own_host(parse_address(master), options.join_timeout)
            address = f"tls://{host}:0"
        elif options.unix_sockets:
            self._directory = PrivateDirectory.make()
            address = self._directory.socket_address(name)
        else:
            address = "tcp://127.0.0.1:0"
        try:
            self.worker = start_worker(name, rank, address, key, options, credentials)
        except BaseException:
            self._close_directory()
            raise
        try:
            # Before the others know of this worker, and may call it.
            joined = self.worker.joined = Future()
            on_start(self.worker)
            self.worker.register_service(_LEAVE, self._on_leave, inline=True)
            self.worker.register_service(_RETURNED, self._on_returned, inline=True)
            self.worker.register_service(_ALIVE, self._on_alive, inline=True)
            self.worker.on_worker_lost(self._on_lost)
            # What the others, too, have defined when they join.
            self._names = defined_names()
            self.members = self._meet(size, meeting)
        except BaseException:
            self.close()
            raise
        for member in self.members:
            known = self.worker.peers.get(member.name)
            # Another incarnation that was met already is a later one: it has been started again.
            is_late = known is not None and known.info.incarnation != member.incarnation
            if member.name != name and not is_late:
                self.worker.add_peer(member.info, member.address)
        self._note_scripts([member.script for member in self.members])
        self.worker.joined = None
        joined.set_result(None)

    def _meet(self, size: int, meeting: Meeting) -> list[Joining]:
        """Return everybody when all are in."""
        info, patience = self.worker.info, self.worker.options.join_timeout
        script = digest_of_script()
        me = Joining(info.name, info.id, size, self.worker.address, info.incarnation, script)
        identity = Identity(
            info.name, info.incarnation, meeting.key, credentials=meeting.credentials
        )
        if info.id:
            return join(meeting.address, identity, me, patience)
        self._rendezvous = Rendezvous(meeting.address, identity, me, self._announce, self._is_alive)
        return self._rendezvous.wait(patience)

    def _note_scripts(self, scripts: list[str]) -> None:
        """Have the script's functions go by name as long as no worker runs another one."""
        with self._lock:
            self._scripts.update(scripts)
            is_one = len(self._scripts) == 1 and "" not in self._scripts
            self.worker.codec.script = self._names if is_one else NO_NAMES

    def _announce(self, returned: Joining) -> None:
        """Rank 0 tells everyone that a worker is back, with another address."""
        # First, since it may find out that the one before was lost.
        self._meet_again(returned)
        with self._lock:
            self._leaving.returned(returned.name)
        for member in self.members:
            if member.name not in (self.worker.name, returned.name):
                with suppress(PeerError):
                    self.worker.notify_service(member.name, _RETURNED, returned)

    def _is_alive(self, member: Joining) -> bool:
        """Ask a worker whether it still is the one that joined; one that is silent is lost."""
        worker, patience = self.worker, self.worker.options.lost_after
        try:
            if (joined := worker.joined) is not None:
                # All are in, but not among the peers yet.
                joined.wait(patience)
            incarnation, _ = worker.ask_service(member.name, _ALIVE, timeout=patience)
        except (PeerError, NotInitialized):
            return False
        # Another may have come to the address of one that has ended.
        return bool(incarnation == member.incarnation)

    def _on_alive(self, request: ServiceRequest) -> None:
        request.reply(self.worker.info.incarnation)

    def _on_returned(self, request: ServiceRequest) -> None:
        if request.frm.id != 0:
            # Anyone else could send calls for another worker wherever it likes.
            raise ProtocolViolation(f"{request.frm.name!r} announces who is back; only rank 0 does")
        self._meet_again(msgspec.convert(request.header, Joining))

    def _meet_again(self, returned: Joining) -> None:
        self._note_scripts([returned.script])
        self.worker.add_peer(returned.info, returned.address)

    def _on_lost(self, who: WorkerInfo, error: BaseException) -> Callable[[], None]:
        return partial(self._note_loss, who)

    def _note_loss(self, who: WorkerInfo) -> None:
        peer = self.worker.peers.get(who.name)
        # That an old incarnation is gone may be noticed after the new one has come.
        if peer is None or peer.info.incarnation == who.incarnation:
            with self._lock:
                ended = self._leaving.lost(who.name)
            self._answer(ended)

    def _on_leave(self, request: ServiceRequest) -> None:
        with self._lock:
            for peer in self.worker.peers.all():
                if peer.lost is None:
                    # Perhaps it was: the network had been cut, and they have met again.
                    self._leaving.returned(peer.info.name)
            ended = self._leaving.report(request.frm.name, int(request.header), request.reply)
        self._answer(ended)

    def _answer(self, ended: Round | None) -> None:
        """Tell those who reported in a round whether they may go."""
        if ended is None:
            return
        if ended.is_last and self._rendezvous is not None:
            # Before anyone goes: who meets again at this address must not meet the old cluster.
            self._rendezvous.close()
        for reply in ended.tokens:
            reply(ended.is_last)

    def leave(self, timeout: float) -> None:
        """Return when all have come to the end of their work, or the time is over."""
        end = time.monotonic() + timeout
        while self.worker.is_quiet(max(0.0, end - time.monotonic())):
            if self._may_go(max(0.01, end - time.monotonic())):
                return

    def _may_go(self, timeout: float) -> bool:
        """Report that this worker is quiet; wait for the others, but not longer than that."""
        served = self.worker.incoming.served
        try:
            is_last, _ = self.worker.ask_service(0, _LEAVE, served, timeout=timeout)
        except PeerError:
            # Rank 0 has gone, or keeps us waiting too long: either way it is time to go.
            return True
        return bool(is_last)

    def close(self) -> None:
        """Free everything, even if Ctrl-C comes meanwhile."""
        try:
            if self._rendezvous is not None:
                self._rendezvous.close()
        finally:
            try:
                self.worker.close()
            finally:
                self._close_directory()

    def end_with_process(self) -> None:
        """The process ends without a shutdown: let its end close what is open, and tell the others.

        Told before, they could fail for this worker's loss and end before it does; but whoever
        started them all takes the first that ends for the cause. So what is said before is why: the
        error that nobody caught, which they take for the reason once the connection closes. What
        runs here gets a moment: a thread that ends inside another library's code may take the
        process down with a signal.
        """
        try:
            error = getattr(sys, "last_value", None)
            if error is not None:
                kind = type(error).__qualname__
                self.worker.losses.say(f"its program ended with {kind}: {error}")
            self.worker.take_no_more()
            host = self.worker.host
            assert isinstance(host, SocketHost), "start_worker made it"
            host.rest(_LAST_MOMENT)
        finally:
            self._close_directory()

    def _close_directory(self) -> None:
        if self._directory is not None:
            self._directory.close()


def own_host(master: Address, patience: float = 0.0) -> str:
    """Return this machine's address on the way to rank 0; for `patience` see `Address.resolve`."""
    reason = ""
    for family, there in master.resolve(patience):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(there)
                return str(probe.getsockname()[0])
        except OSError as error:
            reason = str(error.strerror)
    raise WorkerLost(
        f"no way leads from this machine to {master.text} ({reason}): check MASTER_ADDR, or say "
        "which address of this machine others reach by rpc.Options(host=...)"
    )
