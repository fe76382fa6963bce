"""The launcher keeps the processes of one cluster together: all of them run, or none is left.

There is one thread with one loop: output, the ends of children and signals all arrive through one
selector. Each worker leads a process group of its own, so what it has started ends with it, and the
kernel ends it when this process ends. Invariant: when `run` returns, however it returns, no process
of any worker's group is alive.
"""

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from telegrad.distributed.cluster.output import LineStream, Prefixer
from telegrad.distributed.cluster.process_settings import ends_with
from telegrad.rpc.timeouts import LONGEST_WAIT

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_FORWARDED = (*_ENDING, signal.SIGUSR1, signal.SIGUSR2)
_CHUNK = 64 << 10


class _Worker:
    """One worker: what to start and, once started, its process."""

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], fds: Sequence[int]
    ) -> None:
        self.name = name
        self._command = command
        self._environment = environment
        self._fds = fds
        self.process: subprocess.Popen[bytes] | None = None
        self.has_ended = False

    def start(self) -> subprocess.Popen[bytes]:
        self.process = subprocess.Popen(
            self._command,
            env=self._environment,
            pass_fds=self._fds,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            # Safe: no other thread of this process can hold a lock.
            preexec_fn=ends_with(os.getpid()),
        )
        return self.process

    def signal(self, number: int) -> None:
        """Send a signal to the whole group, if the worker still leads it."""
        if self.process is not None and not self.has_ended:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)

    def reap(self) -> int | None:
        """If the worker has just ended, end what it left behind and return its exit code."""
        if self.process is None or self.has_ended:
            return None
        # Not reaped yet, so that its number, and that of its group, stay taken.
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        if os.waitid(os.P_PID, self.process.pid, options) is None:
            return None
        self.signal(signal.SIGKILL)
        self.has_ended = True
        code = self.process.wait()
        return code if code >= 0 else 128 - code


class Launcher:
    """Starts the planned workers and runs until all have ended."""

    def __init__(self, output: Prefixer, grace: float) -> None:
        """Give workers `grace` seconds to end when told to."""
        self._output = output
        self._grace = grace
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self._streams: dict[IO[bytes], LineStream] = {}
        self._kill_at: float | None = None
        self._exit_code = 0

    def plan(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], fds: Sequence[int]
    ) -> None:
        """Add a worker that `run` will start; `fds` are inherited."""
        self._workers.append(_Worker(name, command, environment, fds))

    def run(self) -> int:
        """Run all workers; return the exit code of the first that failed, 1 if output was lost."""
        with self._selector, _signals() as arrivals:
            self._selector.register(
                arrivals, selectors.EVENT_READ, lambda: self._on_signals(arrivals)
            )
            try:
                for worker in self._workers:
                    self._start(worker)
                while not all(worker.has_ended for worker in self._workers):
                    self._turn()
                self._drain()
            finally:
                for worker in self._workers:
                    worker.signal(signal.SIGKILL)
                    if worker.process is not None:
                        worker.process.wait()
        return self._exit_code or int(self._output.is_lossy)

    def _start(self, worker: _Worker) -> None:
        process = worker.start()
        assert process.stdout is not None
        assert process.stderr is not None
        self._listen(process.stdout, self._output.stdout(worker.name))
        self._listen(process.stderr, self._output.stderr(worker.name))

    def _listen(self, pipe: IO[bytes], lines: LineStream) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._streams[pipe] = lines
        self._selector.register(pipe, selectors.EVENT_READ, lambda: self._on_output(pipe))

    def _turn(self) -> None:
        patience = None
        if self._kill_at is not None:
            patience = min(max(0.0, self._kill_at - time.monotonic()), LONGEST_WAIT)
        for ready, _ in self._selector.select(patience):
            ready.data()
        self._reap()
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill_at = None
            for worker in self._workers:
                worker.signal(signal.SIGKILL)

    def _on_output(self, pipe: IO[bytes]) -> None:
        try:
            data = os.read(pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return
        if data:
            self._streams[pipe].feed(data)
        else:
            self._hang_up(pipe)

    def _hang_up(self, pipe: IO[bytes]) -> None:
        self._streams.pop(pipe).finish()
        self._selector.unregister(pipe)
        pipe.close()

    def _on_signals(self, arrivals: socket.socket) -> None:
        for number in arrivals.recv(_CHUNK):
            if number == signal.SIGCHLD:
                continue
            for worker in self._workers:
                worker.signal(number)
            if number in _ENDING and self._kill_at is None:
                self._kill_at = time.monotonic() + self._grace

    def _reap(self) -> None:
        for worker in self._workers:
            code = worker.reap()
            if code is None or code == 0 or self._exit_code:
                continue
            self._exit_code = code
            if self._kill_at is not None:
                # They were told to end by a signal, and each does so in its own way.
                continue
            said = f"{worker.name} ended with exit code {code}"
            if all(other.has_ended for other in self._workers):
                self._output.say(said)
            else:
                self._output.say(f"{said}: ending the others")
                self._end_all()

    def _end_all(self) -> None:
        self._kill_at = time.monotonic() + self._grace
        for worker in self._workers:
            worker.signal(signal.SIGTERM)
            # A stopped process does not handle SIGTERM before this.
            worker.signal(signal.SIGCONT)

    def _drain(self) -> None:
        """Write what is still in the pipes, without waiting: the workers have ended.

        A process that left its worker's group may hold a pipe open for as long as it likes.
        """
        while any(ready.fileobj in self._streams for ready, _ in self._selector.select(0)):
            for pipe in list(self._streams):
                self._on_output(pipe)
        for pipe in list(self._streams):
            self._hang_up(pipe)


@contextlib.contextmanager
def _signals() -> Iterator[socket.socket]:
    """Yield a socket that the numbers of incoming signals can be read from."""
    arrivals, waker = socket.socketpair()
    waker.setblocking(False)
    arrivals.setblocking(False)
    numbers = (*_FORWARDED, signal.SIGCHLD)
    # The wakeup descriptor is written to only if handlers exist; they have nothing to do.
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    old_waker = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    try:
        yield arrivals
    finally:
        signal.set_wakeup_fd(old_waker)
        for number, handler in before.items():
            signal.signal(number, handler)
        arrivals.close()
        waker.close()
