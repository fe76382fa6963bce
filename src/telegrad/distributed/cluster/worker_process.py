"""A worker process of a LocalCluster: what runs in it, and how it ends.

The parent sends, over one socket, first the spec (with the key, which is never on a command line or
in the environment), then everyone's cards, then how others have ended. When that socket closes, the
parent is gone or wants this process to end, and it ends, whatever it is doing. Who comes or leaves
later is announced by the parent's worker.
"""

import contextlib
import faulthandler
import importlib
import io
import logging
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, Final

import msgspec

from telegrad.distributed.cluster.child_output import LogPipe
from telegrad.distributed.cluster.process_settings import ends_with, switch_often
from telegrad.distributed.cluster.terminal import borrow_terminal
from telegrad.distributed.worker_autograd import attach_autograd
from telegrad.errors import ProtocolViolation
from telegrad.rpc.calls.service import ServiceRequest
from telegrad.rpc.current import set_default_worker
from telegrad.rpc.membership.card import Card
from telegrad.rpc.names import WorkerInfo
from telegrad.rpc.options import Options
from telegrad.rpc.security.keys import ClusterKey
from telegrad.rpc.startup import begin_worker, forget, meet
from telegrad.rpc.wire.conversion import converter
from telegrad.rpc.worker import Worker

INTRODUCE: Final = "telegrad.introduce"

_GRACE: Final = 2.0  # The most seconds from the end of the socket to that of the process.
_LATENCY: Final = 0.5  # Seconds that the parent may take to say why a sibling's connection ended.


class WorkerSpec(msgspec.Struct):
    """What a child is to be."""

    name: str
    id: int
    address: str
    key: bytes
    options: Options
    parent: int | None
    """The process with which the kernel is to end this one."""
    imports: list[str]
    log_fd: int | None
    """Where log records go; None to leave logging alone."""
    levels: dict[str, int]
    """The parent's levels, by logger."""


class Introduction(msgspec.Struct):
    """Who came and who left since the last introduction."""

    came: list[Card]
    left: list[str]


_as_introduction = converter(Introduction)


class Ended(msgspec.Struct):
    """How the process of another worker has ended."""

    name: str
    incarnation: int
    reason: str


class _Siblings:
    """How other workers have ended, as the parent reports it."""

    def __init__(self) -> None:
        self._ended: dict[str, Ended] = {}
        """The last life of each name."""
        self._news = threading.Condition()

    def note(self, ended: Ended) -> None:
        with self._news:
            self._ended[ended.name] = ended
            self._news.notify_all()

    def reason(self, who: WorkerInfo) -> str | None:
        """Return how a worker ended whose connection has closed; wait a moment for the parent."""

        def told() -> str | None:
            known = self._ended.get(who.name)
            is_it = known is not None and known.incarnation == who.incarnation
            return known.reason if known is not None and is_it else None

        # Nobody reports the end of the parent, with which this process ends.
        patience = _LATENCY if who.id else 0.0
        with self._news:
            return self._news.wait_for(told, patience)


def introducer(worker: Worker) -> Callable[[ServiceRequest], None]:
    """Return the handler of a worker for the parent's introductions."""

    def serve(request: ServiceRequest) -> None:
        if request.frm.id != 0:
            # Anyone else could divert calls for another worker to wherever it likes.
            raise ProtocolViolation(f"{request.frm.name!r} introduces others; only the parent does")
        news = _as_introduction(request.header)
        meet(worker, news.came)
        for name in news.left:
            forget(worker, name)
        request.reply(None)

    return serve


class Line:
    """Length-prefixed msgpack over the control socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    def send(self, content: object) -> None:
        """Send one message."""
        data = msgspec.msgpack.encode(content)
        self.socket.sendall(len(data).to_bytes(4, "little") + data)

    def receive(self, type_: Any) -> Any:
        """Return the next message; raise EOFError if the other side is gone."""
        size = int.from_bytes(self._exactly(4), "little")
        return msgspec.msgpack.decode(self._exactly(size), type=type_)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise EOFError("the other side of the control socket has gone")
            data += part
        return data


def main(fd: int) -> None:
    """Be a worker until the control socket closes."""
    switch_often()
    line = Line(socket.socket(fileno=fd))
    try:
        spec: WorkerSpec = line.receive(WorkerSpec)
        if spec.parent is not None and (ask := ends_with(spec.parent)) is not None:
            ask()
        _forward_logs(spec)
        for module in spec.imports:
            importlib.import_module(module)
        worker, _ = begin_worker(
            spec.name,
            spec.id,
            ClusterKey(spec.key),
            spec.options,
            address=spec.address,
            on_start=attach_autograd,
        )
        worker.register_service(INTRODUCE, introducer(worker), inline=True)
        borrow_terminal(worker)
        set_default_worker(worker)
        line.send((worker.address, worker.info.incarnation))
        everyone: list[Card] = line.receive(list[Card])
    except (EOFError, ConnectionError):
        os._exit(1)
    except BaseException as error:
        traceback.print_exc()
        line.send((f"error: {error}", -1))
        os._exit(1)
    meet(worker, everyone)
    line.send(True)
    # A crash writes its stack there, for the parent to report: see exit_reason.py.
    faulthandler.enable(line.socket.fileno())
    siblings = _Siblings()
    worker.losses.explain = siblings.reason
    # Goes on until the parent closes the socket.
    with contextlib.suppress(EOFError, OSError):
        while True:
            siblings.note(line.receive(Ended))
    _leave(worker)


def _forward_logs(spec: WorkerSpec) -> None:
    """Write what is printed line by line, and send log records to the parent."""
    if spec.log_fd is None:
        return
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    logging.root.addHandler(LogPipe(spec.log_fd))
    for name, level in spec.levels.items():
        logging.getLogger(name).setLevel(level)


def _leave(worker: Worker) -> None:
    # User code that does not end must not keep the process alive: nobody waits for it any more.
    threading.Timer(_GRACE, os._exit, (0,)).start()
    worker.close(_GRACE / 2)
    for stream in (sys.stdout, sys.stderr):
        # There is none if the process was started with its descriptor closed.
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.flush()
    os._exit(0)
