"""The output of many workers on one terminal, each line prefixed with its worker's name.

Invariant: lines are written as a whole, so those of two workers never mix. If output can't be
written, that is said once, and the workers go on.
"""

import os
import select
from collections.abc import Callable, Sequence
from typing import BinaryIO

# Legible on dark and light terminals; red is for errors.
_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
_LONGEST_LINE = 1 << 20


class Prefixer:
    """Makes the workers' streams: prefixes of one width, in colours on a terminal."""

    def __init__(self, names: Sequence[str], stdout: BinaryIO, stderr: BinaryIO) -> None:
        self._width = max(map(len, names)) + 2
        self._order = {name: position for position, name in enumerate(names)}
        self._stdout, self._stderr = stdout, stderr
        self.is_lossy = False
        """Whether something could not be written, though its reader may still be there."""

    def stdout(self, name: str) -> "LineStream":
        """Return the stream for the worker's standard output."""
        return self._stream(name, self._stdout)

    def stderr(self, name: str) -> "LineStream":
        """Return the stream for the worker's standard error."""
        return self._stream(name, self._stderr)

    def say(self, message: str) -> None:
        """Write a line of our own to standard error."""
        self._stream("telegrad", self._stderr).feed(f"{message}\n".encode())

    def _stream(self, name: str, target: BinaryIO) -> "LineStream":
        return LineStream(self._prefix(name, target), target, self._on_loss)

    def _on_loss(self, error: OSError) -> None:
        if not self.is_lossy:
            # Set first, since the message itself may fail.
            self.is_lossy = True
            self.say(f"output of the workers is lost: {error.strerror}; they go on")

    def _prefix(self, name: str, target: BinaryIO) -> bytes:
        text = f"[{name}]".ljust(self._width)
        if _has_colours(target):
            position = self._order.get(name)
            colour = 31 if position is None else _COLOURS[position % len(_COLOURS)]
            text = f"\x1b[{colour}m{text}\x1b[0m"
        return f"{text} ".encode()


class LineStream:
    """One worker's stream; it keeps an incomplete line."""

    def __init__(
        self, prefix: bytes, target: BinaryIO, on_loss: Callable[[OSError], object]
    ) -> None:
        self._prefix = prefix
        self._target = target
        self._on_loss = on_loss
        self._partial = b""

    def feed(self, data: bytes) -> None:
        """Take bytes as they came and write the lines they complete."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > _LONGEST_LINE:
            lines.append(self._partial)
            self._partial = b""
        if lines:
            self._write(b"".join(self._prefix + line + b"\n" for line in lines))

    def finish(self) -> None:
        """Write what is left, as a line."""
        if self._partial:
            self.feed(b"\n")

    def _write(self, data: bytes) -> None:
        """Write everything: an unbuffered stream may take only a part when a signal comes."""
        rest = memoryview(data)
        try:
            while rest:
                written = self._target.write(rest)
                if written is None:
                    # Somebody made the descriptor non-blocking, and there is no room now.
                    select.select([], [self._target], [])
                else:
                    rest = rest[written:]
            self._target.flush()
        except BrokenPipeError:
            # The reader is gone (`telegrad run … | head`); the workers go on.
            pass
        except OSError as error:
            self._on_loss(error)


def _has_colours(target: BinaryIO) -> bool:
    return target.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
