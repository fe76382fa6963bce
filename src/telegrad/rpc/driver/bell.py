"""A descriptor that wakes a thread waiting for descriptors."""

import socket


class Bell:
    """A descriptor that is readable from when the bell is rung until it is silenced."""

    def __init__(self) -> None:
        self._rope, self._sound = socket.socketpair()
        self._rope.setblocking(False)
        self._sound.setblocking(False)
        self.fileno = self._sound.fileno

    def ring(self) -> None:
        """Wake the thread."""
        try:
            self._rope.send(b"\0")
        except OSError:
            # Full: it has been rung already. Closed: there is no thread to wake any more.
            pass

    def silence(self) -> None:
        """Let it be rung again."""
        try:
            self._sound.recv(4096)
        except OSError:
            pass

    def close(self) -> None:
        """Free the descriptors."""
        self._rope.close()
        self._sound.close()
