"""`telegrad run`: start a script once for each worker, on this machine, as one cluster."""

import argparse
import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from telegrad.cli.command import WORKERS_HELP, Command, worker_names
from telegrad.cli.launcher import Launcher
from telegrad.distributed.cluster.output import Prefixer
from telegrad.errors import UsageError
from telegrad.rpc.membership import environment as names
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.timeouts import seconds
from telegrad.rpc.transport import PrivateDirectory

_LARGEST_PORT = 65535


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", required=True, metavar="NAMES|NUMBER", help=WORKERS_HELP)
    parser.add_argument(
        "--port", type=int, default=0, help="where rank 0 listens (default: a free port)"
    )
    parser.add_argument(
        "--grace",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="how long workers that are told to end may take (default: 10)",
    )
    parser.add_argument(
        "-m",
        "--module",
        action="store_true",
        help="run a module by its name, as `python -m` does, in place of a script",
    )
    parser.add_argument("script", help="the Python script each worker runs")
    rest = parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, help="the script's own arguments"
    )
    # Otherwise argparse would list them as missing, too, where the script is missing.
    rest.required = False


def _execute(arguments: argparse.Namespace) -> int:
    workers = worker_names(arguments.workers)
    if not 0 <= arguments.port <= _LARGEST_PORT:
        raise UsageError(
            f"expected --port from 1 to {_LARGEST_PORT}, or 0 for a free one, got {arguments.port}"
        )
    grace = seconds(arguments.grace, "--grace")
    command = [sys.executable, arguments.script, *arguments.arguments]
    if arguments.module:
        command.insert(1, "-m")
    elif not Path(arguments.script).is_file():
        raise UsageError(
            f"no script at {arguments.script}: give the path of a Python file, or -m and the name "
            "of a module"
        )
    port = arguments.port or _free_port()
    with _key_for_children() as (key_path, fds):
        launcher = Launcher(Prefixer(workers, _raw(sys.stdout), _raw(sys.stderr)), grace)
        for rank, name in enumerate(workers):
            environment = {
                # Python would write to a pipe in blocks, but lines are wanted at once.
                "PYTHONUNBUFFERED": "1",
                names.THREADS: names.threads_each(len(workers)),
                **os.environ,
                names.LAUNCHER: "run",
                names.MASTER_ADDR: "127.0.0.1",
                names.MASTER_PORT: str(port),
                names.RANK: str(rank),
                names.WORLD_SIZE: str(len(workers)),
                names.WORKER_NAME: name,
                names.KEY_FILE: key_path,
            }
            launcher.plan(name, command, environment, fds)
        return launcher.run()


@contextlib.contextmanager
def _key_for_children() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the path of a new key that children can read, and the descriptors to inherit."""
    key = ClusterKey.fresh()
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        # A file without a name: it ends with the last process, even if all are killed.
        fd = os.memfd_create("telegrad-key")
        try:
            os.fchmod(fd, 0o600)
            os.write(fd, key.encode())
            yield f"/proc/self/fd/{fd}", (fd,)
        finally:
            os.close(fd)
    else:
        with PrivateDirectory.make() as directory:
            path = os.path.join(directory.path, "cluster.key")
            key.save(path)
            yield path, ()


def _raw(stream: TextIO) -> BinaryIO:
    """Return the stream below the buffer of a standard stream.

    The buffer would keep what can't be written, and fail again when the process ends.
    """
    return cast(BinaryIO, getattr(stream.buffer, "raw", stream.buffer))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


RUN = Command("run", "start a script once a worker on this machine", _configure, _execute)
