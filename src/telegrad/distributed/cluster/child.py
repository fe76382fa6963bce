"""A worker process as its parent sees it: the process, and the control socket between them."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
from typing import Any, Final

from telegrad.distributed.cluster.child_output import ChildOutput
from telegrad.distributed.cluster.exit_reason import wait_for_reason
from telegrad.distributed.cluster.output import Prefixer
from telegrad.distributed.cluster.worker_process import Line
from telegrad.errors import WorkerLost
from telegrad.rpc.membership.environment import THREADS, threads_each

# Runs in the child before anything of telegrad can be imported, since the path has to come first.
# Until then only built-in modules are imported: the working directory may have a module of any
# other name. Ctrl-C is for the parent from the start, or each child would print a traceback.
_BOOT: Final = (
    "import sys,_signal; _signal.signal(_signal.SIGINT,_signal.SIG_IGN);"
    "n=int.from_bytes(sys.stdin.buffer.read(4),'little');"
    "sys.path[:]=sys.stdin.buffer.read(n).decode('utf-8','surrogatepass').split('\\0');"
    "from telegrad.distributed.cluster.worker_process import main; main(int(sys.argv[1]))"
)


class Child:
    """A process and the parent's end of its control socket.

    `log_fd` is the descriptor, in the child, that it writes log records to; `output` reads these
    and what it prints, unless it writes to this process's own streams.
    """

    def __init__(
        self,
        name: str,
        process: "subprocess.Popen[bytes]",
        line: Line,
        log_fd: int | None = None,
        output: ChildOutput | None = None,
    ) -> None:
        self.name = name
        self.process = process
        self.line = line
        self.log_fd = log_fd
        self.output = output
        self.incarnation: int | None = None
        """The worker's, once it has told it."""
        self._asking = threading.Lock()
        self._reason: str | None = None

    def send(self, content: object) -> None:
        """Send a message; if the process has ended, `receive` raises for it."""
        with contextlib.suppress(OSError):
            self.line.send(content)

    def receive(self, type_: Any) -> Any:
        """Return the child's next message."""
        try:
            return self.line.receive(type_)
        except TimeoutError:
            raise WorkerLost(
                f"the process of worker {self.name!r} was not up in time: give LocalCluster a "
                "longer start_timeout, or see what keeps the machine busy"
            ) from None
        except (EOFError, OSError) as error:
            raise WorkerLost(
                f"the process of worker {self.name!r} ended before it was up (exit status "
                f"{self.status(1.0)}): its own output says why"
            ) from error

    def reason(self) -> str | None:
        """Return how the process ended, in words; None if it still runs."""
        # The stack of a crash can be read only once.
        with self._asking:
            if self._reason is None:
                self._reason = wait_for_reason(self.process, self.line.socket)
            return self._reason

    def status(self, patience: float = 0.0) -> str:
        """Return the exit status as text."""
        try:
            return str(self.process.wait(patience))
        except subprocess.TimeoutExpired:
            return "none yet"


def spawn(name: str, processes: int, lines: Prefixer | None = None) -> Child:
    """Start the process of a worker, one of `processes` that share the cores.

    With `lines`, what it prints and logs comes to this process, and is written there.
    """
    # multiprocessing does the same for its children; there is no public function.
    options: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    ours, theirs = socket.socketpair()
    logs: list[int] = [] if lines is None else [*os.pipe()]
    out = None if lines is None else subprocess.PIPE
    try:
        process = subprocess.Popen(
            [sys.executable, *options, "-c", _BOOT, str(theirs.fileno())],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            pass_fds=[theirs.fileno(), *logs[1:]],
            env={THREADS: threads_each(processes), **os.environ},
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
    child = Child(name, process, Line(ours))
    if lines is not None:
        child.log_fd = logs[1]
        child.output = ChildOutput(name, process, logs[0], lines)
    # Python ignores entries that are not text, such as Paths, and so do the children.
    entries = [entry or os.getcwd() for entry in sys.path if isinstance(entry, str)]
    path = "\0".join(entries).encode("utf-8", "surrogatepass")
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
        pipe.write(len(path).to_bytes(4, "little") + path)
    return child
