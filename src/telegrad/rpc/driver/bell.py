"""What wakes a thread that waits for descriptors."""

import socket


class Bell:
    """A descriptor that is ready to be read once the bell was rung, until it is silenced."""

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
            # Full: it was rung often enough. Closed: nobody is to be woken any more.
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
