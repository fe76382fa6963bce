"""Finding out where a worker meets the others of its world, and with which secrets.

1. At a place that the program names: a directory that all see, or a store of PyTorch's.
2. In the directory that TELEGRAD_MEETING names.
3. On one machine: in the user's own directory, at a place named after the launcher's job or the
   port.
4. At MASTER_ADDR and MASTER_PORT, or at rank 0's host if the launcher names it: rank 0 listens
   there. Under torchrun, whose agent has its store at that port, they meet in the store.

Beyond this machine, or if told to, workers speak TLS. Without certificates of `telegrad keygen`,
they derive certificates from their key.
"""

import hashlib
import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from telegrad.errors import UsageError
from telegrad.rpc.membership import environment
from telegrad.rpc.membership.board import Board
from telegrad.rpc.membership.directory_board import DirectoryBoard
from telegrad.rpc.membership.launch import Launch
from telegrad.rpc.membership.rendezvous import Meeting
from telegrad.rpc.membership.store_board import Store, StoreBoard
from telegrad.rpc.membership.user_directory import meeting_named, users_key
from telegrad.rpc.security.key_file import KeySource
from telegrad.rpc.security.keyed_credentials import KeyedCredentials
from telegrad.rpc.security.tls import CredentialSource
from telegrad.rpc.transport import Address

_PORT: Final = "29500"
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


def find_meeting(
    env: Mapping[str, str],
    launch: Launch | None,
    name: str,
    *,
    is_open: bool = False,
    place: Any = None,
    tls: bool | None = None,
) -> Meeting:
    """Return where to meet, by what the program and its launcher say; see above."""
    place = place or env.get(environment.MEETING)
    host = env.get(environment.MASTER_ADDR) or (launch.host if launch is not None else "")
    is_local = is_loopback(host) or (launch is not None and launch.is_on_one_machine)
    if not is_local and not environment.names_secrets(env):
        found = f" ({launch.launcher} was found)" if launch is not None else ""
        raise UsageError(f"{environment.NO_KEY}{found}")
    key, credentials = secrets_for(env, name, not is_local if tls is None else tls)
    if place is not None:
        return Meeting("", key, credentials, board_of(place))
    if launch is not None and launch.job and is_local and credentials is None:
        return meeting_named(f"job-{_digest(launch.job)}", key, is_open=is_open)
    port = _checked(env.get(environment.MASTER_PORT) or _port_of(launch))
    if credentials is None and (is_open or not environment.names_secrets(env)):
        return meeting_named(f"port-{port}", key, is_open=is_open)
    scheme = "tcp" if credentials is None else "tls"
    address = Address(scheme, host=host or "127.0.0.1", port=port).text
    if launch is not None and launch.launcher == "torchrun":
        return Meeting(address, key, credentials, _agents_board(address, launch.job))
    return Meeting(address, key, credentials)


def board_of(place: Any) -> Board:
    """Return the board at a place that a program names."""
    if isinstance(place, (str, os.PathLike)):
        return DirectoryBoard(os.fspath(place).removeprefix("file://"))
    if isinstance(place, Board):
        return place
    if isinstance(place, Store):
        return StoreBoard(place)
    raise UsageError(
        "expected a directory's path or a torch.distributed.Store as the place to meet, got a "
        f"{type(place).__name__}"
    )


def is_loopback(host: str) -> bool:
    """Say whether a host name means this machine, on whichever machine it is read."""
    return host in ("", *_LOOPBACK)


def secrets_for(
    env: Mapping[str, str], name: str, tls: bool
) -> tuple[KeySource, CredentialSource | None]:
    """Return a worker's key, by default the user's own, and its certificate if it needs one.

    A certificate of `telegrad keygen` is always used if one is named.
    """
    key, credentials = (
        environment.find_secrets(env, name)
        if environment.names_secrets(env)
        else (users_key(), None)
    )
    if credentials is None and tls:
        return key, KeyedCredentials(name, key)
    return key, credentials


def _agents_board(address: str, job: str) -> Board:
    # Imported by name: this layer knows nothing of PyTorch, which torchrun's users have.
    found = import_module("telegrad.interop.torch.agent_store").store_at(address)
    return StoreBoard(found, f"telegrad/{job}")


def _checked(port: str) -> int:
    if port.isascii() and port.isdigit() and int(port) < 1 << 16:
        return int(port)
    raise UsageError(f"expected a port up to 65535 for {environment.MASTER_PORT}, got {port!r}")


def _port_of(launch: Launch | None) -> str:
    """Return the port where rank 0 listens by default; each job has one of its own."""
    if launch is None or not launch.job:
        return _PORT
    return str(20000 + int(_digest(launch.job), 16) % 10000)


def _digest(job: str) -> str:
    return hashlib.sha256(job.encode()).hexdigest()[:20]
