"""The cluster's key, known to every worker of a cluster and to nobody else.

Invariant: the bytes never appear in a representation, an error or a log, and a file that holds
them is readable by its owner alone.
"""

import hmac
import os
import secrets
import stat

from telegrad.errors import Refused, UsageError

KEY_BYTES = 32
_LARGEST_FILE = 1 << 16


class ClusterKey:
    """Thirty-two random bytes, never shown, from which other keys are derived."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        if not isinstance(secret, bytes) or len(secret) != KEY_BYTES:
            got = f"{len(secret)} bytes" if isinstance(secret, bytes) else type(secret).__name__
            raise UsageError(
                f"expected a cluster key of {KEY_BYTES} bytes, got {got}: make one with "
                "ClusterKey.fresh() or `telegrad keygen`"
            )
        self._secret = secret

    def __repr__(self) -> str:
        return "ClusterKey(<hidden>)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClusterKey):
            return NotImplemented
        return hmac.compare_digest(self._secret, other._secret)

    def __hash__(self) -> int:
        return hash(self._secret)

    def __reduce__(self) -> tuple[object, ...]:
        raise UsageError(
            "a ClusterKey can't be pickled, lest it travel to another worker by accident: "
            "hand over the path of its file"
        )

    @classmethod
    def fresh(cls) -> "ClusterKey":
        """Return a new random key."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "ClusterKey":
        """Return the key in the file, the first one if there are several."""
        return cls.load_all(path)[0]

    @classmethod
    def load_all(cls, path: str | os.PathLike[str]) -> tuple["ClusterKey", ...]:
        """Return the keys in the file, which only its owner may be able to read.

        A file that root owns, as cluster engines mount secrets, may be readable by its group.
        """
        try:
            with open(path, "rb") as file:
                _check_private(os.fstat(file.fileno()), path)
                text = file.read(_LARGEST_FILE).decode("ascii", "replace")
        except FileNotFoundError:
            raise UsageError(
                f"no cluster key at {os.fspath(path)}: make one with `telegrad keygen FILE`"
            ) from None
        lines = text.split() or [""]
        return tuple(cls.parse(line, os.fspath(path)) for line in lines)

    @classmethod
    def parse(cls, text: str, where: str) -> "ClusterKey":
        """Return the key written in hexadecimal digits; errors say `where` the text was found."""
        try:
            return cls(bytes.fromhex(text.strip()))
        except (ValueError, UsageError):
            raise UsageError(
                f"expected {2 * KEY_BYTES} hexadecimal digits in {where}, got something "
                "else: make a new key with `telegrad keygen`"
            ) from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the key to a new file with mode 0600; an existing file is not replaced."""
        write_private(path, self.encode())

    def encode(self) -> bytes:
        """Return the contents of a key file."""
        return self._secret.hex().encode("ascii") + b"\n"

    def valid(self) -> tuple["ClusterKey", ...]:
        """Return the keys that are valid: this one, for ever. See KeySource."""
        return (self,)

    @property
    def tag(self) -> str:
        """An identifier of this key, which reveals nothing about it."""
        return self.derive("telegrad key tag", b"")[:8].hex()

    def derive(self, label: str, transcript: bytes) -> bytes:
        """Return thirty-two bytes that only holders of this key can compute: HKDF-Expand, RFC 5869.

        Results for different labels or transcripts reveal nothing about each other. (HKDF's first
        step, which makes a key out of uneven randomness, is not needed here.)
        """
        return hmac.digest(self._secret, label.encode() + b"\0" + transcript + b"\x01", "sha256")


class SessionKeys:
    """The keys of one connection's frames, one for each direction; they are never shown."""

    __slots__ = ("receiving", "sending")

    def __init__(self, sending: bytes, receiving: bytes) -> None:
        self.sending = sending
        self.receiving = receiving

    def __repr__(self) -> str:
        return "SessionKeys(<hidden>)"


def write_private(path: str | os.PathLike[str], contents: bytes) -> None:
    """Write a new file with mode 0600; an existing file is not replaced."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(contents)


def _check_private(status: os.stat_result, path: str | os.PathLike[str]) -> None:
    # The group may read a file of root's, but not write it, lest it replace the key.
    closed_to = 0o037 if status.st_uid == 0 else 0o077
    if stat.S_ISREG(status.st_mode) and status.st_mode & closed_to:
        raise Refused(
            f"the cluster key {os.fspath(path)} can be read by others (mode "
            f"{stat.S_IMODE(status.st_mode):04o}): run `chmod 600` on it, or mint a new one"
        )
