"""The module-level functions: a thin face over the current worker, with PyTorch's names."""

import atexit
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from telegrad.errors import PeerError, ProtocolViolation, UsageError, WorkerLost
from telegrad.rpc import environment
from telegrad.rpc.call import Call
from telegrad.rpc.current import current_worker, default_worker, set_default_worker
from telegrad.rpc.future import Future
from telegrad.rpc.leaving import Leaving, Round
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.options import Options
from telegrad.rpc.rendezvous import Joining, Meeting, Rendezvous, join
from telegrad.rpc.rref import RRef
from telegrad.rpc.service import ServiceRequest
from telegrad.rpc.starting import start_worker
from telegrad.rpc.timeouts import seconds
from telegrad.rpc.transport import (
    UNIX_SOCKETS,
    Address,
    Identity,
    PrivateDirectory,
    parse_address,
)
from telegrad.rpc.worker import Worker

__all__ = [
    "get_worker_info",
    "init_rpc",
    "remote",
    "rpc_async",
    "rpc_sync",
    "shutdown",
]

_LEAVE: Final = "telegrad.leave"
_RETURNED: Final = "telegrad.returned"
_HOW_TO_START: Final = (
    "start the script once for each worker, as `telegrad run --workers 2 script.py` does, or use "
    "LocalCluster, which needs none of this"
)
_lock = threading.Lock()
_membership: "_Membership | None" = None


def _setting(value: Any, name: str, argument: str) -> int:
    if value is None:
        value = os.environ.get(name)
    if value is None:
        given = f"{name} in the environment"
        if argument != name:
            given = f"{argument}=..., or {given}"
        raise UsageError(f"init_rpc needs {given}: {_HOW_TO_START}")
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"expected an integer for {argument} ({name}), got {value!r}") from None


class _Membership:
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
        # Before the members are known: a quick worker may leave while rank 0 still counts them.
        self._leaving = Leaving(size)
        if credentials is not None:
            address = f"tls://{options.host or _own_host(parse_address(master))}:0"
        elif UNIX_SOCKETS and options.unix_sockets:
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
            self.worker.on_worker_lost(self._on_lost)
            info = self.worker.info
            me = Joining(name, rank, size, self.worker.address, info.incarnation)
            identity = Identity(name, info.incarnation, key, credentials=credentials)
            if rank == 0:
                self._rendezvous = Rendezvous(master, identity, me, self._announce)
                members = self._rendezvous.wait(options.join_timeout)
            else:
                members = join(master, identity, me, options.join_timeout)
        except BaseException:
            self.close()
            raise
        self.members = members
        for member in members:
            if member.name != name:
                self.worker.add_peer(member.info, member.address)
        self.worker.joined = None
        joined.set_result(None)

    def _announce(self, returned: Joining) -> None:
        """Rank 0 tells everyone that a worker is back, with another address."""
        # First, since it may find out that the one before was lost.
        self.worker.add_peer(returned.info, returned.address)
        with _lock:
            self._leaving.returned(returned.name)
        for member in self.members:
            if member.name not in (self.worker.name, returned.name):
                try:
                    self.worker.notify_service(member.name, _RETURNED, msg_of(returned))
                except PeerError:
                    continue

    def _on_returned(self, request: ServiceRequest) -> None:
        if request.frm.id != 0:
            # Anyone else could send calls for another worker wherever it likes.
            raise ProtocolViolation(f"{request.frm.name!r} announces who is back; only rank 0 does")
        name, rank, address, incarnation = msgspec.convert(
            request.header, tuple[str, int, str, int]
        )
        self.worker.add_peer(WorkerInfo(name, rank, incarnation), address)

    def _on_lost(self, who: WorkerInfo, error: BaseException) -> None:
        peer = self.worker.peers.get(who.name)
        # That an old incarnation is gone may be noticed after the new one has come.
        if peer is None or peer.info.incarnation == who.incarnation:
            with _lock:
                ended = self._leaving.lost(who.name)
            self._answer(ended)

    def _on_leave(self, request: ServiceRequest) -> None:
        with _lock:
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
        if self._rendezvous is None:
            try:
                is_last, _ = self.worker.ask_service(0, _LEAVE, served, timeout=timeout)
            except PeerError:
                # Rank 0 has gone, or keeps us waiting too long: either way it is time to go.
                return True
            return bool(is_last)
        told: queue.SimpleQueue[bool] = queue.SimpleQueue()
        with _lock:
            ended = self._leaving.report(self.worker.name, served, told.put)
        self._answer(ended)
        try:
            return told.get(timeout=timeout)
        except queue.Empty:
            return True

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

    def _close_directory(self) -> None:
        if self._directory is not None:
            self._directory.close()


def msg_of(joining: Joining) -> list[Any]:
    """Return what is told of a worker that came back."""
    return [joining.name, joining.rank, joining.address, joining.incarnation]


def _own_host(master: Address) -> str:
    """Return this machine's address on the way to rank 0."""
    import socket

    reason = ""
    for family, there in master.resolve():
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


def _meeting_of_environment() -> Meeting:
    host = os.environ.get(environment.MASTER_ADDR, "127.0.0.1")
    port = _setting(None, environment.MASTER_PORT, "MASTER_PORT")
    key, credentials = environment.find_secrets(os.environ)
    scheme = "tcp" if credentials is None else "tls"
    return Meeting(Address(scheme, host=host, port=port).text, key, credentials)


def init_rpc(
    name: str | None = None,
    *,
    rank: int | None = None,
    world_size: int | None = None,
    options: Options | None = None,
    meeting: Meeting | None = None,
    on_start: Callable[[Worker], object] = lambda _: None,
) -> Worker:
    """Make this process a worker of a cluster; return when all workers are in.

    What is not given comes from the environment: MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE,
    TELEGRAD_WORKER_NAME, and the key by TELEGRAD_KEY_FILE or TELEGRAD_CREDENTIALS. `on_start` gets
    the worker before any other can call it.
    """
    global _membership
    name = name or os.environ.get(environment.WORKER_NAME)
    if not name:
        given = f"a name, or {environment.WORKER_NAME} in the environment"
        raise UsageError(f"init_rpc needs {given}: {_HOW_TO_START}")
    own_rank = _setting(rank, environment.RANK, "rank")
    size = _setting(world_size, environment.WORLD_SIZE, "world_size")
    if not 0 <= own_rank < size:
        raise UsageError(
            f"expected a rank from 0 to {size - 1} in a world of {size}, got {own_rank}"
        )
    existing = default_worker()
    if existing is not None and not existing.closed:
        raise UsageError(
            f"this process is the worker {existing.name!r} already: call shutdown first"
        )
    meeting = meeting or _meeting_of_environment()
    membership = _Membership(name, own_rank, size, options or Options(), meeting, on_start)
    _membership = membership
    set_default_worker(membership.worker)
    atexit.register(_leave_at_exit, membership)
    return membership.worker


def _leave_at_exit(membership: _Membership) -> None:
    if not membership.worker.closed:
        membership.close()


def shutdown(graceful: bool = True, timeout: float = 60.0) -> None:
    """Leave the cluster; a graceful one waits until all have finished, `timeout` s at most."""
    global _membership
    timeout = min(seconds(timeout), threading.TIMEOUT_MAX)
    membership, _membership = _membership, None
    worker = default_worker()
    if membership is None:
        current_worker().close()
    else:
        try:
            if graceful and not membership.worker.closed:
                membership.leave(timeout)
        finally:
            membership.close()
            atexit.unregister(_leave_at_exit)
    if worker is not None and worker.closed:
        set_default_worker(None)


def rpc_sync(
    to: str | int | WorkerInfo,
    func: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> Any:
    """Run `func(*args, **kwargs)` on worker `to` and return its result.

    `timeout`: seconds until it fails with CallTimeout, 0 for never; else `Options.rpc_timeout`.
    """
    return current_worker().rpc_sync(to, func, args, kwargs, timeout)


def rpc_async(
    to: str | int | WorkerInfo,
    func: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> Call:
    """Start `func(*args, **kwargs)` on worker `to` and return the future of its result.

    `timeout`: seconds until it fails with CallTimeout, 0 for never; else `Options.rpc_timeout`.
    """
    return current_worker().rpc_async(to, func, args, kwargs, timeout)


def remote(
    to: str | int | WorkerInfo,
    func: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> RRef:
    """Run `func(*args, **kwargs)` on worker `to` and return a reference to its result.

    `timeout`: seconds for `to` to take the call, not to compute the result; see `RRef.to_here`.
    """
    return current_worker().remote(to, func, args, kwargs, timeout)


def get_worker_info(worker_name: str | int | None = None) -> WorkerInfo:
    """Return who a worker is; without a name, who this one is."""
    worker = current_worker()
    return worker.info if worker_name is None else worker.find(worker_name).info
