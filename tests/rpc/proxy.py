"""A small TCP proxy that can stop forwarding without telling anyone: a link that is half open."""

import contextlib
import socket
import threading
import time

__all__ = ["Proxy"]


class Proxy:
    """Forwards every connection to `target`, (host, port), both ways, until it is `cut`."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._open = threading.Event()
        self._open.set()
        self._closed = False
        self._pause = 0.0
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cut(self) -> None:
        """Forward nothing from now on; connections stay open, and new ones are accepted."""
        self._open.clear()

    def heal(self) -> None:
        """Forward again, what was held up first."""
        self._open.set()

    def slow_down(self, pause: float) -> None:
        """Forward 64 KB at a time, and then pause."""
        self._pause = pause

    def close(self) -> None:
        self._closed = True
        self._open.set()
        for each in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)

    def _start(self, work, *args) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                here, _ = self._listener.accept()
                there = socket.create_connection(self._target)
            except OSError:
                return
            self._sockets += [here, there]
            self._start(self._forward, here, there)
            self._start(self._forward, there, here)

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(64 << 10):
                self._open.wait()
                sink.sendall(data)
                if self._pause:
                    time.sleep(self._pause)
        self._open.wait()
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
