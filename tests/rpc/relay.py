"""A process without the key that holds the port a worker dials, and relays what it hears.

It forwards the handshake of whoever dials it to another listener, byte for byte or changed; then it
says what it likes to both, in the name of the other.
"""

import contextlib
import socket
import threading
from collections.abc import Callable

from telegrad.rpc.security.introduction import INTRODUCTION_BYTES

__all__ = ["Relay"]

PROOF_BYTES = 33
Change = Callable[[bytes], bytes]


class Relay:
    """Holds `port`; relays one handshake to `target`, then sends `to_listener` and `to_dialler`.

    `of_dialler` and `of_listener` change an introduction on its way. With neither message it goes
    on forwarding.
    """

    def __init__(
        self,
        target: tuple[str, int],
        *,
        to_listener: bytes = b"",
        to_dialler: bytes = b"",
        of_dialler: Change = bytes,
        of_listener: Change = bytes,
        port: int = 0,
    ) -> None:
        self._target = target
        self._to_listener, self._to_dialler = to_listener, to_dialler
        self._of_dialler, self._of_listener = of_dialler, of_listener
        self._sockets: list[socket.socket] = []
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.relayed = threading.Event()
        """Whether both sides took the other's proof for good."""
        self.is_over = threading.Event()
        """Whether an attempt has ended, well or badly."""
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def __enter__(self) -> "Relay":
        return self

    def __exit__(self, *_: object) -> None:
        for each in [self._socket, *self._sockets]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)

    def _start(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                dialler, _ = self._socket.accept()
                listener = socket.create_connection(self._target)
                self._sockets += [dialler, listener]
                self._start(self._attempt, dialler, listener)

    def _attempt(self, dialler: socket.socket, listener: socket.socket) -> None:
        try:
            listener.sendall(self._of_dialler(_exactly(dialler, INTRODUCTION_BYTES)))
            dialler.sendall(self._of_listener(_exactly(listener, INTRODUCTION_BYTES)))
            listener.sendall(_exactly(dialler, PROOF_BYTES))
            proof = _exactly(listener, PROOF_BYTES)
            if proof[0]:
                self.relayed.set()
            dialler.sendall(proof)
            if self._to_listener or self._to_dialler:
                listener.sendall(self._to_listener)
                dialler.sendall(self._to_dialler)
                return
            self._start(_forward, dialler, listener)
            self._start(_forward, listener, dialler)
        except (OSError, EOFError):
            for each in (dialler, listener):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        finally:
            self.is_over.set()


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = source.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _forward(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(64 << 10):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
