"""Where the workers of a program meet, by the URL that it passes to ``init_rpc``.

``env://`` and ``tcp://host:port`` give rank 0's address. ``file:///path`` may be any path, the same
for all workers: they meet at a socket named after it, and telegrad never touches the file.

Programs written for PyTorch have no key. On one machine telegrad uses the *user's key*, made once,
in a directory that only this user can enter. These workers also meet in that directory, at a socket
named after the port: the port itself may be in use by PyTorch's own store, which process groups and
``torchrun`` have at the same address. A program on several machines needs a key or certificates, as
every cluster does.
"""

import hashlib
import os
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from telegrad.errors import UsageError
from telegrad.rpc.membership import environment
from telegrad.rpc.membership.place import is_loopback, secrets_for
from telegrad.rpc.membership.rendezvous import Meeting
from telegrad.rpc.membership.user_directory import meeting_named, users_key
from telegrad.rpc.transport import Address


class MeetingPlace(NamedTuple):
    """Where to meet, this worker's rank, and the number of workers."""

    meeting: Meeting
    rank: int
    world_size: int | None
    """None in an open world."""


def find_place(init_method: str, rank: int, world_size: int | None, name: str = "") -> MeetingPlace:
    """Return where to meet, given a URL and the arguments of ``init_rpc``.

    Arguments:
        init_method: The URL.
        rank: This worker's number; below 0 to take it from the URL or the environment.
        world_size: The number of workers; None to take it from the URL or the environment.
        name: This worker's name, for a certificate.

    Raises:
        ValueError: If the URL is not valid, or the rank or the port is not given anywhere.
    """
    url = urlsplit(init_method)
    if url.scheme not in ("env", "tcp", "file"):
        raise ValueError(
            f"expected env://, tcp://host:port or file:///path as init_method, got {init_method!r}"
        )
    asked = {name: values[0] for name, values in parse_qs(url.query).items()}
    if url.scheme == "env":
        asked = {"rank": os.environ.get("RANK", ""), "world_size": os.environ.get("WORLD_SIZE", "")}
    own_rank = rank if rank >= 0 else _number(url.scheme, asked, "rank")
    text = asked.get("world_size")
    size = world_size or (_integer("world_size", text) if text else None)
    if url.scheme == "file":
        return MeetingPlace(_meeting_by_path(url.path, size is None), own_rank, size)
    if url.scheme == "tcp":
        if url.hostname is None or url.port is None:
            raise ValueError(f"expected tcp://host:port as init_method, got {init_method!r}")
        return MeetingPlace(_meeting_at(url.hostname, url.port, size is None, name), own_rank, size)
    host = os.environ.get(environment.MASTER_ADDR, "127.0.0.1")
    port = os.environ.get(environment.MASTER_PORT)
    if port is None:
        raise ValueError(f"environment variable {environment.MASTER_PORT} expected, but not set")
    return MeetingPlace(_meeting_at(host, _port(port), size is None, name), own_rank, size)


def _number(scheme: str, asked: dict[str, str], name: str) -> int:
    text = asked.get(name)
    if not text:
        if scheme == "env":
            raise ValueError(f"environment variable {name.upper()} expected, but not set")
        raise ValueError(f"{name} parameter missing: give it to init_rpc or in the URL")
    return _integer(name, text)


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"expected an integer for {name}, got {text!r}") from None


def _port(text: str) -> int:
    port = _integer(environment.MASTER_PORT, text)
    if not 0 <= port < 1 << 16:
        raise ValueError(f"expected a port up to 65535 for {environment.MASTER_PORT}, got {port}")
    return port


def _meeting_at(host: str, port: int, is_open: bool, name: str) -> Meeting:
    if not environment.names_secrets(os.environ):
        Address("tcp", host=host, port=port).check()
        return meeting_named(f"port-{port}", users_key(), is_open=is_open)
    key, credentials = secrets_for(os.environ, name, not is_loopback(host))
    scheme = "tcp" if credentials is None else "tls"
    return Meeting(Address(scheme, host=host, port=port).text, key, credentials)


def _meeting_by_path(path: str, is_open: bool) -> Meeting:
    name = hashlib.sha256(os.path.realpath(path).encode()).hexdigest()[:24]
    has_secrets = environment.names_secrets(os.environ)
    key, credentials = environment.find_secrets(os.environ) if has_secrets else (users_key(), None)
    if credentials is not None:
        raise UsageError(
            "expected tcp://host:port or env:// as init_method of a cluster over several machines, "
            f"got file://{path}"
        )
    return meeting_named(name, key, is_open=is_open)
