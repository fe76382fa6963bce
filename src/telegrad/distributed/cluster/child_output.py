"""The output of a LocalCluster's workers, shown by the process that started them.

Printed lines are prefixed with the worker's name and go to this process's `sys.stdout` and
`sys.stderr`, so a notebook shows them, too. Log records come over a pipe of their own and are
handled by this process's loggers and handlers; its levels at the worker's start decide which are
sent.

Invariant: what a worker wrote before it ended is shown before `finish` returns.
"""

import logging
import os
import selectors
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, BinaryIO, Final, cast

import msgspec

from telegrad.distributed.cluster.output import LineStream, Prefixer

_CHUNK: Final = 1 << 16
_KEPT: Final = ("name", "levelno", "levelname", "pathname", "lineno", "funcName", "created")
"""The attributes of a log record that are sent; its message and exception go as text."""


def logging_levels() -> dict[str, int]:
    """Return the level of each logger that has one; "" is the root."""
    named = {
        name: logger.level
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and logger.level
    }
    return {"": logging.root.level, **named}


class LogPipe(logging.Handler):
    """A worker's handler: sends records to the process that started it."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd

    def emit(self, record: logging.LogRecord) -> None:
        """Send the whole record; the handler's lock keeps other threads out."""
        try:
            text = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
            told = {name: getattr(record, name) for name in _KEPT}
            told.update(msg=record.getMessage(), exc_text=text or record.exc_text)
            data = msgspec.msgpack.encode(told)
            rest = memoryview(len(data).to_bytes(4, "little") + data)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except Exception:
            self.handleError(record)


class ChildOutput:
    """Reads what one worker writes, on a thread, until its process has ended."""

    def __init__(
        self, name: str, process: "subprocess.Popen[bytes]", log_fd: int, lines: Prefixer
    ) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._name = name
        self._log = b""
        self._files: list[BinaryIO] = [
            cast(BinaryIO, process.stdout),
            cast(BinaryIO, process.stderr),
            cast(BinaryIO, os.fdopen(log_fd, "rb", 0)),
        ]
        self._streams: list[LineStream] = [lines.stdout(name), lines.stderr(name)]
        feeds = [*(stream.feed for stream in self._streams), self._feed_log]
        self._thread = threading.Thread(
            target=self._read, args=(feeds,), name=f"telegrad-output-{name}", daemon=True
        )
        self._thread.start()

    def finish(self, timeout: float) -> None:
        """Wait until all is read; a process that the worker started may keep its output open."""
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def _read(self, feeds: list[Callable[[bytes], object]]) -> None:
        # For three files that will do; other selectors take a descriptor, for each worker.
        with selectors.PollSelector() as selector:
            for file, feed in zip(self._files, feeds):
                selector.register(file, selectors.EVENT_READ, feed)
            while selector.get_map():
                for key, _ in selector.select():
                    data = os.read(key.fd, _CHUNK)
                    if data:
                        key.data(data)
                    else:
                        selector.unregister(key.fileobj)
        for stream in self._streams:
            stream.finish()
        for file in self._files:
            file.close()

    def _feed_log(self, data: bytes) -> None:
        self._log += data
        while len(self._log) >= 4:
            end = 4 + int.from_bytes(self._log[:4], "little")
            if len(self._log) < end:
                return
            told: dict[str, Any] = msgspec.msgpack.decode(self._log[4:end])
            self._log = self._log[end:]
            told["msg"] = f"[{self._name}] {told['msg']}"
            record = logging.makeLogRecord({**told, "args": None, "worker": self._name})
            logger = logging.getLogger(record.name)
            if logger.isEnabledFor(record.levelno):
                logger.handle(record)


class _Current:
    """A standard stream of this process, as it is at the time of writing."""

    def __init__(self, name: str) -> None:
        self._name = name

    def write(self, data: Any) -> int:
        stream = getattr(sys, self._name)
        # There is none without a console, nor at the process's end.
        if stream is not None and not stream.closed:
            stream.write(bytes(data).decode("utf-8", "replace"))
        return len(data)

    def flush(self) -> None:
        stream = getattr(sys, self._name)
        if stream is not None and not stream.closed:
            stream.flush()

    def isatty(self) -> bool:
        stream = getattr(sys, self._name)
        return stream is not None and not stream.closed and stream.isatty()


def prefixer(names: list[str]) -> Prefixer:
    """Return a Prefixer that writes to this process's own streams."""
    stdout, stderr = cast(BinaryIO, _Current("stdout")), cast(BinaryIO, _Current("stderr"))
    return Prefixer(names, stdout, stderr)
