"""Starting a worker over sockets, and letting it meet and forget others.

Everything that starts workers (init_rpc, LocalCluster, Ray's actors) uses three functions:
`begin_worker`, `meet` and `forget`.
"""

import secrets
import socket
from collections.abc import Callable, Iterable

from telegrad.errors import UsageError, WorkerLost
from telegrad.rpc.debugger import hook as breakpoint_hook
from telegrad.rpc.driver.host import SocketHost
from telegrad.rpc.losses import Farewell
from telegrad.rpc.membership.card import Card
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.options import Options
from telegrad.rpc.security.introduction import Limits
from telegrad.rpc.security.key_file import KeySource
from telegrad.rpc.security.tls import CredentialSource
from telegrad.rpc.transport import Address, Identity, PrivateDirectory, parse_address
from telegrad.rpc.transport.machine import this_machine
from telegrad.rpc.worker import Worker


def begin_worker(
    name: str,
    id: int,
    key: KeySource,
    options: Options,
    *,
    credentials: CredentialSource | None = None,
    address: str = "",
    towards: str = "",
    on_start: Callable[[Worker], object] = lambda _: None,
) -> tuple[Worker, PrivateDirectory | None]:
    """Return a worker that others can reach, and its socket's directory, which the caller closes.

    If no address is given and there are credentials, it listens on this machine's address on the
    way to `towards`, or on the address in the options, and on a Unix socket for workers of the same
    machine. Without credentials, it listens on a Unix socket in a directory of its own, or on
    loopback. `on_start` gets the worker before any other can call it.
    """
    directory = None
    if not options.listen:
        if address:
            raise UsageError(
                f"expected rpc.Options(listen=True) for {name!r}, which others dial at {address}: "
                "only a worker that joins by init_rpc may listen nowhere"
            )
    elif not address:
        far = "" if credentials is None else _far_address(options, towards)
        machine = this_machine() if far else ""
        if options.unix_sockets and (machine or not far):
            directory = PrivateDirectory.make()
            near = parse_address(directory.socket_address(name))
            address = Address("unix", path=near.path, machine=machine).text
        address = ",".join(filter(None, (address, far))) or "tcp://127.0.0.1:0"
    try:
        worker = start_worker(name, id, address, key, options, credentials)
        try:
            on_start(worker)
        except BaseException:
            worker.close()
            raise
    except BaseException:
        if directory is not None:
            directory.close()
        raise
    return worker, directory


def _far_address(options: Options, towards: str) -> str:
    way = parse_address(towards) if towards else None
    return Address("tls", host=options.host or own_host(way, options.join_timeout)).text


def meet(worker: Worker, cards: Iterable[Card], *, are_news: bool = True) -> None:
    """Make others known to a worker.

    A card with an unknown incarnation belongs to a later life of the worker, so the known life is
    lost; unless the cards are not news: then it belongs to an earlier life, and is ignored.
    """
    for card in cards:
        known = worker.peers.get(card.name)
        is_late = known is not None and known.info.incarnation != card.incarnation
        if card.name != worker.name and (are_news or not is_late):
            worker.add_peer(card.info, card.address)


def forget(worker: Worker, name: str, incarnation: int | None = None) -> None:
    """Make a worker forget a name; given an incarnation, only if it still has the name."""
    known = worker.peers.get(name)
    if known is None or name == worker.name:
        return
    if incarnation in (None, known.info.incarnation):
        worker.drop_peer(known, Farewell("it has left"))


def start_worker(
    name: str,
    id: int,
    address: str,
    key: KeySource,
    options: Options | None = None,
    credentials: CredentialSource | None = None,
) -> Worker:
    """Return a worker that listens at the address; make others known to it by `add_peer`."""
    options = options or Options()
    if credentials is not None:
        # Fail now: otherwise each peer would refuse it, and it would wait for them in vain.
        credentials.check(name)
    # Random, so that no two incarnations of a worker are equal; 63 bits fit everywhere.
    incarnation = secrets.randbits(63) | 1
    identity = Identity(
        name,
        incarnation,
        key,
        Limits(payload_bytes=options.in_flight_bytes_of_peer),
        segments=options.segments,
        credentials=credentials,
    )
    host = SocketHost(identity, address, options)
    breakpoint_hook.install()
    return Worker(WorkerInfo(name, id, incarnation), host, options)


def own_host(towards: Address | None, patience: float = 0.0) -> str:
    """Return this machine's address on the way to another; for `patience` see `Address.resolve`."""
    there_is = towards or Address("tls", host=socket.gethostname())
    reason = ""
    for family, there in there_is.resolve(patience):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(there)
                return str(probe.getsockname()[0])
        except OSError as error:
            reason = str(error.strerror)
    raise WorkerLost(
        f"no way leads from this machine to {there_is.text} ({reason}): check MASTER_ADDR, or say "
        "which address of this machine others reach by rpc.Options(host=...)"
    )
