"""How file descriptors reach a worker on the same host: a second Unix socket beside the first.

Descriptors could be sent on the payload's socket, but then every read of it would have to be a
`recvmsg` with room for them (0.4 µs more than `recv_into`), although two workers pass only a few
in their lives. So the listener makes a socket pair at the end of the handshake and sends one end
with its proof.

Invariant: descriptors are sent before the frame that names them. The kernel puts them straight into
the receiver's queue, so a reader of the frame finds them there, in the order of the frames.
"""

import array
import collections
import contextlib
import errno
import math
import os
import socket
from collections.abc import Sequence

from telegrad.errors import ProtocolViolation
from telegrad.rpc.transport.readiness import is_ready

# The kernel takes 253 descriptors a message.
_DESCRIPTORS_PER_MESSAGE = 250
# 0 on macOS, which lacks it.
_MSG_CMSG_CLOEXEC: int = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


def send_with_descriptors(
    sock: socket.socket, data: bytes, fds: Sequence[int], flags: int = 0
) -> int:
    """Send the data with the descriptors attached; return how many bytes were sent."""
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
    return sock.sendmsg([data], [rights], flags)


def receive_with_descriptors(
    sock: socket.socket, size: int, flags: int = 0
) -> tuple[bytes, list[int]]:
    """Receive up to `size` bytes and the descriptors sent with them; the caller owns these.

    Raise OSError if some were dropped because this process may open no more.
    """
    room = socket.CMSG_LEN(_DESCRIPTORS_PER_MESSAGE * array.array("i").itemsize)
    data, ancillary, told, _ = sock.recvmsg(size, room, flags | _MSG_CMSG_CLOEXEC)
    fds: array.array[int] = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    if told & socket.MSG_CTRUNC:
        for fd in fds:
            os.close(fd)
        raise OSError(errno.EMFILE, "this process may have no more open files (ulimit -n)")
    return data, fds.tolist()


class DescriptorChannel:
    """One end of the second socket."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        self._socket = sock
        self._arrived: collections.deque[int] = collections.deque()

    @staticmethod
    def pair() -> "tuple[DescriptorChannel, socket.socket]":
        """Return one end, and the socket to hand to the other side."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return DescriptorChannel(ours), theirs

    def send(self, fds: Sequence[int], deadline: float = math.inf) -> bool:
        """Send copies of the descriptors; the caller keeps its own.

        False if the deadline passed before any was sent; after the first, all are sent.
        """
        for first in range(0, len(fds), _DESCRIPTORS_PER_MESSAGE):
            some = fds[first : first + _DESCRIPTORS_PER_MESSAGE]
            while True:
                try:
                    send_with_descriptors(self._socket, b"\0", some, socket.MSG_DONTWAIT)
                    break
                except BlockingIOError:
                    until = math.inf if first else deadline
                    if not is_ready(self._socket.fileno(), until, for_write=True):
                        return False
        return True

    def take(self) -> int:
        """Return the next descriptor, which the caller owns; ProtocolViolation if none came."""
        if not self._arrived:
            with contextlib.suppress(BlockingIOError):
                _, fds = receive_with_descriptors(self._socket, 1, socket.MSG_DONTWAIT)
                self._arrived.extend(fds)
        if not self._arrived:
            raise ProtocolViolation("expected a file descriptor with the frame, got none")
        return self._arrived.popleft()

    def shutdown(self) -> None:
        """End a `send` that waits for the other side."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket and the descriptors that were not taken."""
        while self._arrived:
            os.close(self._arrived.popleft())
        self._socket.close()
