"""A cluster on this machine: a process for each name, and the calling process as one more worker.

Children are fresh interpreters that take over `sys.path`, the interpreter's options (-O, -W, -X),
the working directory and the environment, and never run the caller's script, so nothing needs a
`__main__` guard. Where the environment says nothing about threads, all share the cores. Children
are kept by a socket each: when it closes, on exit, on an exception or because this process was
killed, they end.
"""

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from telegrad.distributed.cluster.child_output import ChildOutput, logging_levels, prefixer
from telegrad.distributed.cluster.exit_reason import wait_for_reason
from telegrad.distributed.cluster.worker_process import Directory, Line, WorkerSpec
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.errors import UnknownWorker, UsageError, WorkerLost
from telegrad.rpc.current import default_worker, set_default_worker
from telegrad.rpc.membership.environment import THREADS, threads_each
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.options import Options, given_options
from telegrad.rpc.security.introduction import check_worker_name
from telegrad.rpc.security.keys import KEY_BYTES, ClusterKey
from telegrad.rpc.startup import start_worker
from telegrad.rpc.timeouts import LONGEST_WAIT, seconds
from telegrad.rpc.transport import PrivateDirectory
from telegrad.rpc.wire.functions import exposing_modules
from telegrad.rpc.worker import Worker

__all__ = ["LocalCluster"]

# Runs in the child before anything of telegrad can be imported: the path comes first. Until then
# only what is built in is imported: a module of the working directory may have any other name.
_BOOT: Final = (
    "import sys; n=int.from_bytes(sys.stdin.buffer.read(4),'little');"
    "sys.path[:]=sys.stdin.buffer.read(n).decode('utf-8','surrogatepass').split('\\0');"
    "from telegrad.distributed.cluster.worker_process import main; main(int(sys.argv[1]))"
)
_START_TIMEOUT: Final = 60.0  # Seconds.
_GRACE: Final = 3.0  # Seconds that children have to end by themselves; longer than their own.
_running: "set[LocalCluster]" = set()
"""Those entered and not left yet. Kept here: a cluster that nothing refers to would be collected,
and its workers would end without a word."""


class _Child(NamedTuple):
    name: str
    process: "subprocess.Popen[bytes]"
    line: Line
    log_fd: int | None = None
    """Where it writes log records, as it numbers its files."""
    output: ChildOutput | None = None

    def send(self, content: object) -> None:
        # If the process has ended, `receive` finds out and names it.
        with contextlib.suppress(OSError):
            self.line.send(content)

    def receive(self, type_: Any) -> Any:
        try:
            return self.line.receive(type_)
        except TimeoutError:
            raise WorkerLost(
                f"the process of worker {self.name!r} was not up in time: give LocalCluster a "
                "longer start_timeout, or see what keeps the machine busy"
            ) from None
        except (EOFError, OSError) as error:
            code: int | str
            try:
                code = self.process.wait(1.0)
            except subprocess.TimeoutExpired:
                code = "none yet"
            raise WorkerLost(
                f"the process of worker {self.name!r} ended before it was up (exit status {code}): "
                "its own output says why"
            ) from error


class LocalCluster:
    """Workers on this machine, in a `with` statement.

    Inside the block the module-level functions speak for the calling process's worker, from any
    thread.

    Arguments:
        names: The workers to start a process for.
        me: The name of the calling process's worker, whose id is 0.
        options: Those of every worker.
        start_timeout: The seconds that the processes have to come up.
        prefix_output: Whether what the processes print gets the worker's name before each line, and
            what they log is handled by this process's loggers; else they write to its streams.

    Raises:
        UsageError: For names that are no names or come twice.
        WorkerLost: On entering the block, if a process did not come up.

    Examples:
        >>> from telegrad.distributed import LocalCluster
        >>> with LocalCluster(["ps", "trainer"]):
        ...     print(rpc.rpc_sync("ps", abs, (-2,)))
        2
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        me: str = "main",
        options: Options | None = None,
        start_timeout: float = _START_TIMEOUT,
        prefix_output: bool = True,
    ) -> None:
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise UsageError(f'expected a list of names like ["ps", "trainer"], got {names!r}')
        everyone = [me, *names]
        for name in everyone:
            check_worker_name(name)
        twice = sorted({name for name in everyone if everyone.count(name) > 1})
        if twice:
            raise UsageError(
                f"expected different names, {', '.join(twice)} came twice; this process is {me!r} "
                "itself, me=... gives it another name"
            )
        self._names = list(names)
        self._me = me
        self._options = given_options(options)
        self._start_timeout = seconds(start_timeout, "start_timeout")
        self._lines = prefixer([*names]) if prefix_output and names else None
        self._children: dict[str, _Child] = {}
        self._directory: PrivateDirectory | None = None
        self._worker: Worker | None = None
        self._before: Worker | None = None

    @property
    def worker(self) -> Worker:
        """The calling process's own worker."""
        if self._worker is None:
            raise UsageError("the cluster is not running: use it in a with statement")
        return self._worker

    @property
    def names(self) -> list[str]:
        """All workers, in the order of their ids."""
        return [self._me, *self._names]

    def process(self, name: str) -> "subprocess.Popen[bytes]":
        """Return the process of a worker, for those who want to watch or kill it."""
        child = self._children.get(name)
        if child is None:
            raise UnknownWorker(
                f"there is no process of worker {name!r}; there are {', '.join(self._children)}"
            )
        return child.process

    def __enter__(self) -> "LocalCluster":
        if self._worker is not None:
            raise UsageError("the cluster is running already")
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _start(self) -> None:
        end = time.monotonic() + self._start_timeout
        secret = secrets.token_bytes(KEY_BYTES)
        key = ClusterKey(secret)
        if self._options.unix_sockets:
            self._directory = PrivateDirectory.make()
        for name in self._names:
            self._spawn(name)
        for number, name in enumerate(self._names, 1):
            self._children[name].send(
                WorkerSpec(
                    name,
                    number,
                    self._address(name),
                    secret,
                    self._options,
                    # The kernel's signal comes when the *thread* that started the child ends.
                    os.getpid() if threading.current_thread() is threading.main_thread() else None,
                    # A strict worker imports nothing because a peer names it; its starter may say.
                    exposing_modules() if self._options.strict else [],
                    self._children[name].log_fd,
                    logging_levels(),
                )
            )
        worker = start_worker(self._me, 0, self._address(self._me), key, self._options)
        self._worker = worker
        attach_autograd(worker)
        worker.losses.explain = self._explain
        self._introduce(worker, end)
        self._before = set_default_worker(worker)
        _running.add(self)

    def _introduce(self, worker: Worker, end: float) -> None:
        everyone: Directory = [(self._me, 0, worker.info.incarnation, worker.address)]
        for number, name in enumerate(self._names, 1):
            child = self._children[name]
            left = max(0.1, end - time.monotonic())
            child.line.socket.settimeout(left if left < LONGEST_WAIT else None)
            address, incarnation = child.receive(tuple[str, int])
            if incarnation < 0:
                raise WorkerLost(f"worker {name!r} could not start: {address}")
            everyone.append((name, number, incarnation, address))
            worker.add_peer(WorkerInfo(name, number, incarnation), address)
        for child in self._children.values():
            child.send(everyone)
        for child in self._children.values():
            child.receive(bool)

    def _explain(self, who: WorkerInfo) -> str | None:
        child = self._children.get(who.name)
        return None if child is None else wait_for_reason(child.process, child.line.socket)

    def _address(self, name: str) -> str:
        if self._directory is None:
            return "tcp://127.0.0.1:0"
        return self._directory.socket_address(name)

    def _spawn(self, name: str) -> None:
        # As multiprocessing does for its children; it has no public name.
        options: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        ours, theirs = socket.socketpair()
        logs: list[int] = [] if self._lines is None else [*os.pipe()]
        out = subprocess.PIPE if self._lines is not None else None
        try:
            process = subprocess.Popen(
                [sys.executable, *options, "-c", _BOOT, str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                pass_fds=[theirs.fileno(), *logs[1:]],
                env={THREADS: threads_each(len(self._names) + 1), **os.environ},
            )
        except BaseException:
            ours.close()
            for fd in logs[:1]:
                os.close(fd)
            raise
        finally:
            theirs.close()
            for fd in logs[1:]:
                os.close(fd)
        child = _Child(name, process, Line(ours))
        if self._lines is not None:
            output = ChildOutput(name, process, logs[0], self._lines)
            child = child._replace(log_fd=logs[1], output=output)
        self._children[name] = child
        # Python passes over entries that are no text, such as Paths, and so do the children.
        entries = [entry or os.getcwd() for entry in sys.path if isinstance(entry, str)]
        path = "\0".join(entries).encode("utf-8", "surrogatepass")
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(len(path).to_bytes(4, "little") + path)

    def close(self) -> None:
        """End the cluster; may be called again."""
        _running.discard(self)
        worker, self._worker = self._worker, None
        children, self._children = list(self._children.values()), {}
        try:
            if worker is not None:
                # If the start failed, it never became the default.
                if worker is default_worker():
                    set_default_worker(self._before)
                worker.close()
            for child in children:
                child.line.socket.close()
            end = time.monotonic() + _GRACE
            for child in children:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.process.wait(max(0.0, end - time.monotonic()))
        finally:
            # Those left were stopped, or are stuck in native code, or Ctrl-C ended the wait.
            for child in children:
                child.line.socket.close()
                # A stopped process can be killed, not ended.
                child.process.kill()
                child.process.wait()
                if child.output is not None:
                    child.output.finish(_GRACE)
            if self._directory is not None:
                self._directory.close()
                self._directory = None
