"""Which segments a receiver has let go of: a byte for each, in a page that both processes map.

The sender makes a board for each receiver, an anonymous memory file, and sets a segment's mark
before it sends; the receiver clears it when it needs the segment no more. No message says so.
The receiver opens the file by the sender's descriptor (``/proc/<process>/fd``), which works where
device memory can be shared, too: the same host, user and process namespace. A secret at the
beginning of the file shows that it is the one that was meant.

Invariant: a board is one receiver's. One that clears a mark too early harms its own tensors only.
"""

import fcntl
import mmap
import os
import secrets
import threading
from typing import Final

from telegrad.errors import ProtocolViolation

_SECRET_BYTES: Final = 16
MARKS: Final = mmap.PAGESIZE - _SECRET_BYTES
"""How many marks a board has."""
_NAME: Final = "telegrad-marks"
_SEALS: Final = 0x2 | 0x4  # F_SEAL_SHRINK | F_SEAL_GROW


class MarkBoard:
    """One side's mapping of a board."""

    def __init__(self, memory: mmap.mmap, fd: int = -1) -> None:
        self._memory = memory
        self._fd = fd
        self._fence = threading.Lock()

    @classmethod
    def make(cls) -> "MarkBoard":
        """Return a new board, all marks clear; OSError where the system has no memory files."""
        fd = os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, mmap.PAGESIZE)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
            board = cls(mmap.mmap(fd, mmap.PAGESIZE), fd)
        except BaseException:
            os.close(fd)
            raise
        board._memory[:_SECRET_BYTES] = secrets.token_bytes(_SECRET_BYTES)
        return board

    def whereabouts(self) -> tuple[int, int, bytes]:
        """Return what the receiver needs to open it: process, descriptor, secret."""
        return os.getpid(), self._fd, self._memory[:_SECRET_BYTES]

    @classmethod
    def open(cls, process: int, descriptor: int, secret: bytes) -> "MarkBoard":
        """Return the peer's board; OSError where it can't be reached.

        Raises:
            ProtocolViolation: It is no board, or not the one that the secret belongs to.
        """
        path = f"/proc/{process:d}/fd/{descriptor:d}"
        if not os.readlink(path).startswith(f"/memfd:{_NAME}"):
            # Looked at before it is opened, which may block or do something elsewhere.
            raise ProtocolViolation(f"expected a board of marks at {path}, got another file")
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            size = os.fstat(fd).st_size
            sealed = fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS == _SEALS
            if size != mmap.PAGESIZE or not sealed:
                raise ProtocolViolation(
                    f"expected a sealed board of {mmap.PAGESIZE} bytes at {path}, got {size}"
                )
            memory = mmap.mmap(fd, mmap.PAGESIZE)
        finally:
            os.close(fd)
        if not secrets.compare_digest(memory[:_SECRET_BYTES], secret):
            raise ProtocolViolation(f"the board of marks at {path} is not the one that was named")
        return cls(memory)

    def set(self, place: int) -> None:
        """Note that the receiver has it from now on."""
        self._memory[_SECRET_BYTES + place] = 1

    def clear(self, place: int) -> None:
        """Note that the receiver has let go of it."""
        # A release, then an acquisition: what was done before is seen before the mark is, also on
        # processors that may swap the two.
        with self._fence:
            pass
        self._memory[_SECRET_BYTES + place] = 0

    def is_set(self, place: int) -> bool:
        """Say whether the receiver still has it."""
        return bool(self._memory[_SECRET_BYTES + place])

    def close(self) -> None:
        """Close the descriptor; a process that has opened the board keeps it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
