"""A file of keys, one a line: a worker proves with the first, and accepts proofs with any.

So a key can be changed while the workers run: add the new one after the old one everywhere, then
put it first everywhere, then drop the old one. The file is checked before each handshake.
"""

import os
from typing import Final, Protocol

from telegrad.errors import UsageError
from telegrad.rpc.security.keys import ClusterKey, write_private
from telegrad.rpc.security.watched_files import WatchedFiles

STEPS: Final = ("add", "use", "drop")
"""The steps of changing a key; each is done everywhere before the next."""


class KeySource(Protocol):
    """The source of a worker's cluster keys: one ClusterKey, or a file of several."""

    def valid(self) -> tuple[ClusterKey, ...]:
        """Return the keys that are valid now, first the one to prove with."""


class KeyFile:
    """The keys in a file, kept up to date."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._keys = WatchedFiles([path], lambda: ClusterKey.load_all(path))

    def __repr__(self) -> str:
        return f"KeyFile({self._path!r})"

    def valid(self) -> tuple[ClusterKey, ...]:
        """Return the keys in the file, first the one to prove with."""
        return self._keys.current()


def next_keys(keys: tuple[ClusterKey, ...], step: str) -> tuple[ClusterKey, ...]:
    """Return the keys after a step of changing them."""
    if step == "add" and len(keys) > 1:
        raise UsageError(
            f"expected one key to add another to, got {len(keys)}: the last change is not finished "
            "(--rotate use, then --rotate drop)"
        )
    if step != "add" and len(keys) == 1:
        raise UsageError(f"expected two keys to {step} one, got one: begin with --rotate add")
    if step == "add":
        return (*keys, ClusterKey.fresh())
    return (keys[-1], *keys[:-1]) if step == "use" else keys[:1]


def write_keys(path: str | os.PathLike[str], keys: tuple[ClusterKey, ...]) -> None:
    """Replace a file of keys atomically by another with mode 0600."""
    unseen = f"{os.fspath(path)}.{os.getpid()}"
    write_private(unseen, b"".join(key.encode() for key in keys))
    os.replace(unseen, path)
