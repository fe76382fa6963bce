"""A worker process that this one has started: its process, and the socket that holds it."""

import contextlib
import os
import socket
import subprocess
import sys
from typing import Any, Final

from telegrad.distributed.cluster.worker_process import Line
from telegrad.errors import WorkerLost
from telegrad.rpc.membership.environment import THREADS, threads_each

__all__ = ["Child", "spawn"]

# Runs in the child before anything of telegrad can be imported: the path comes first. Until then
# only what is built in is imported: a module of the working directory may have any other name.
_BOOT: Final = (
    "import sys; n=int.from_bytes(sys.stdin.buffer.read(4),'little');"
    "sys.path[:]=sys.stdin.buffer.read(n).decode('utf-8','surrogatepass').split('\\0');"
    "from telegrad.distributed.cluster.worker_process import main; main(int(sys.argv[1]))"
)


class Child:
    """A process and the parent's end of its control socket."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", line: Line) -> None:
        self.name = name
        self.process = process
        self.line = line

    def send(self, content: object) -> None:
        """Send a message; if the process has ended, `receive` finds out and names it."""
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

    def status(self, patience: float = 0.0) -> str:
        """Return the exit status as text."""
        try:
            return str(self.process.wait(patience))
        except subprocess.TimeoutExpired:
            return "none yet"


def spawn(name: str, processes: int) -> Child:
    """Start the process of a worker, which shares the cores with that many others."""
    # As multiprocessing does for its children; it has no public name.
    options: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    ours, theirs = socket.socketpair()
    try:
        process = subprocess.Popen(
            [sys.executable, *options, "-c", _BOOT, str(theirs.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            env={THREADS: threads_each(processes), **os.environ},
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    # Python passes over entries that are no text, such as Paths, and so do the children.
    entries = [entry or os.getcwd() for entry in sys.path if isinstance(entry, str)]
    path = "\0".join(entries).encode("utf-8", "surrogatepass")
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
        pipe.write(len(path).to_bytes(4, "little") + path)
    return Child(name, process, Line(ours))
