"""Which segments a receiver still needs: one byte each, in a page that both processes map.

The sender makes a board, an anonymous memory file, for each receiver. It sets a segment's mark
before it sends, and the receiver clears the mark when it is done with the segment: no message is
needed. The receiver opens the file through the sender's descriptor (``/proc/<process>/fd``), which
works wherever device memory can be shared: same host, user and process namespace. A secret at the
beginning of the file proves that it is the right one.

Invariant: a board has one receiver. If that clears a mark too early, only its own tensors suffer.
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
        """Return a new board with all marks clear; OSError if the system has no memory files."""
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
        """Return what the receiver needs to open the board: process, descriptor, secret."""
        return os.getpid(), self._fd, self._memory[:_SECRET_BYTES]

    @classmethod
    def open(cls, process: int, descriptor: int, secret: bytes) -> "MarkBoard":
        """Return the peer's board; OSError where it can't be reached.

        Raises:
            ProtocolViolation: The file is no board, or has another secret.
        """
        path = f"/proc/{process:d}/fd/{descriptor:d}"
        if not os.readlink(path).startswith(f"/memfd:{_NAME}"):
            # Checked before opening: opening another kind of file may block or have effects.
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
        """Note that the receiver holds the segment from now on."""
        self._memory[_SECRET_BYTES + place] = 1

    def clear(self, place: int) -> None:
        """Note that the receiver is done with the segment."""
        # Locking and unlocking is a memory fence: earlier writes become visible before the mark,
        # also on processors that reorder stores.
        with self._fence:
            pass
        self._memory[_SECRET_BYTES + place] = 0

    def is_set(self, place: int) -> bool:
        """Tell whether the receiver still holds the segment."""
        return bool(self._memory[_SECRET_BYTES + place])

    def close(self) -> None:
        """Close the descriptor; a process that has mapped the board keeps its mapping."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
