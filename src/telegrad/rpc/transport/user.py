"""Who is at the other end of a Unix socket, according to the kernel.

Over a Unix socket a worker speaks only with processes of its own user; so only that user could come
between two workers, and their bytes need no proof.
"""

import os
import socket
import struct

from telegrad.errors import AuthenticationFailed

# Linux: process, user, group.
_UCRED = struct.Struct("3i")
# macOS and the BSDs, a socket option of level 0: version, user (and groups, unused).
_XUCRED = struct.Struct("II")
_XUCRED_BYTES = 76
_SOL_LOCAL = 0


def peer_process(sock: socket.socket) -> tuple[int, int] | None:
    """Return the process (0 if unknown) and user at the other end; None if not available."""
    if sock.family != socket.AF_UNIX:
        return None
    if hasattr(socket, "SO_PEERCRED"):
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        pid, user, _ = _UCRED.unpack(credentials)
        return pid, user
    if option := getattr(socket, "LOCAL_PEERCRED", 0):
        _, user = _XUCRED.unpack_from(sock.getsockopt(_SOL_LOCAL, option, _XUCRED_BYTES))
        return 0, user
    return None


def check_same_user(sock: socket.socket) -> None:
    """Raise unless the other end of a Unix socket is a process of this one's user."""
    own, process = os.geteuid(), peer_process(sock)
    if process is None:
        raise AuthenticationFailed(
            "this system does not tell who is at the other end of a Unix socket: use TCP by "
            "rpc.Options(unix_sockets=False)"
        )
    if process[1] != own:
        raise AuthenticationFailed(
            f"expected a process of user {own} at the other end of the Unix socket, got one of "
            f"user {process[1]}: run all workers of this machine as one user, or let them use TCP "
            "by rpc.Options(unix_sockets=False)"
        )
