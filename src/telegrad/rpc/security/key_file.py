"""A file of keys, one a line, of which the first proves and each is taken for a proof.

So a key is changed while the workers run: add the new one behind the old one everywhere, then put
it first everywhere, then drop the old one. The file is looked at before each handshake.
"""

import os
from typing import Final, Protocol

from telegrad.errors import UsageError
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.security.watched_files import WatchedFiles

STEPS: Final = ("add", "use", "drop")
"""Of changing a key; each is taken everywhere before the next."""


class KeySource(Protocol):
    """Where a worker has its cluster's keys from: one ClusterKey, or a file of several."""

    def valid(self) -> tuple[ClusterKey, ...]:
        """Return the keys that hold now, the one to prove with first."""


class KeyFile:
    """The keys in a file; see above."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._keys = WatchedFiles([path], lambda: ClusterKey.load_all(path))

    def __repr__(self) -> str:
        return f"KeyFile({self._path!r})"

    def valid(self) -> tuple[ClusterKey, ...]:
        """Return the keys that are in the file now, the one to prove with first."""
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
    """Replace a file of keys by another, mode 0600; it is there whole at any moment."""
    unseen = f"{os.fspath(path)}.{os.getpid()}"
    with open(os.open(unseen, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(b"".join(key.encode() for key in keys))
    os.replace(unseen, path)
