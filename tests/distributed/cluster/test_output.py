"""Lines of many workers on one terminal."""

import errno
import io
import os
import threading
from typing import BinaryIO, cast

import pytest

from telegrad.distributed.cluster.output import Prefixer


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


class Hesitant(io.BytesIO):
    """Takes ten bytes at a time, as an unbuffered stream may."""

    def write(self, data: bytes) -> int:  # type: ignore[override]
        return super().write(bytes(data)[:10])


class ClosedPipe(io.BytesIO):
    def write(self, data: object) -> int:
        raise BrokenPipeError


class FullDevice(io.BytesIO):
    def write(self, data: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_each_line_carries_its_workers_name_in_one_width() -> None:
    out, err = io.BytesIO(), io.BytesIO()
    prefixer = Prefixer(["ps", "trainer0"], out, err)
    prefixer.stdout("ps").feed(b"one\ntwo\n")
    prefixer.stdout("trainer0").feed(b"three\n")
    prefixer.stderr("ps").feed(b"wrong\n")
    assert out.getvalue() == b"[ps]       one\n[ps]       two\n[trainer0] three\n"
    assert err.getvalue() == b"[ps]       wrong\n"


def test_a_line_that_comes_in_pieces_is_written_once_and_whole() -> None:
    out = io.BytesIO()
    prefixer = Prefixer(["a", "b"], out, io.BytesIO())
    first, second = prefixer.stdout("a"), prefixer.stdout("b")
    first.feed(b"begin ")
    second.feed(b"other\n")
    first.feed("ünd end".encode()[:1])
    first.feed("ünd end".encode()[1:])
    assert out.getvalue() == b"[b] other\n"
    first.finish()
    first.finish()
    assert out.getvalue() == "[b] other\n[a] begin ünd end\n".encode()


def test_a_stream_that_takes_a_part_gets_the_rest() -> None:
    out = Hesitant()
    Prefixer(["a"], out, io.BytesIO()).stdout("a").feed(b"x" * 95 + b"\n")
    assert out.getvalue() == b"[a] " + b"x" * 95 + b"\n"


def test_a_line_without_end_is_not_kept_for_ever() -> None:
    out = io.BytesIO()
    Prefixer(["a"], out, io.BytesIO()).stdout("a").feed(b"x" * 2_000_000)
    assert len(out.getvalue()) > 2_000_000


def test_workers_have_colours_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out, err = Terminal(), io.BytesIO()
    prefixer = Prefixer(["a", "b"], out, err)
    prefixer.stdout("a").feed(b"x\n")
    prefixer.stdout("b").feed(b"x\n")
    prefixer.stderr("a").feed(b"x\n")
    one, other = out.getvalue().splitlines()
    assert one.startswith(b"\x1b[36m[a]")
    assert other.startswith(b"\x1b[33m[b]")
    assert err.getvalue() == b"[a] x\n"


def test_colours_can_be_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    Prefixer(["a"], out, io.BytesIO()).stdout("a").feed(b"x\n")
    assert out.getvalue() == b"[a] x\n"


def test_a_reader_that_went_away_does_not_end_the_workers() -> None:
    err = io.BytesIO()
    prefixer = Prefixer(["a"], ClosedPipe(), err)
    prefixer.stdout("a").feed(b"x\n")
    assert not prefixer.is_lossy
    assert err.getvalue() == b""


def test_what_finds_no_room_is_said_to_be_lost_once_and_does_not_end_the_workers() -> None:
    err = io.BytesIO()
    prefixer = Prefixer(["a"], FullDevice(), err)
    prefixer.stdout("a").feed(b"x\n")
    prefixer.stdout("a").feed(b"y\n")
    assert prefixer.is_lossy
    assert err.getvalue() == (
        b"[telegrad] output of the workers is lost: No space left on device; they go on\n"
    )


def test_a_full_device_for_both_streams_is_no_error() -> None:
    prefixer = Prefixer(["a"], FullDevice(), FullDevice())
    prefixer.stdout("a").feed(b"x\n")
    assert prefixer.is_lossy


def test_a_pipe_that_another_program_made_non_blocking_loses_nothing() -> None:
    ours, theirs = os.pipe()
    received: list[bytes] = []
    reader = threading.Thread(
        target=lambda: received.extend(iter(lambda: os.read(ours, 4096), b""))
    )
    line = b"x" * 300_000
    with open(theirs, "wb", buffering=0) as out:
        os.set_blocking(theirs, False)
        prefixer = Prefixer(["a"], cast(BinaryIO, out), io.BytesIO())
        filler = b"." * 65536
        while out.write(filler) is not None:
            pass
        reader.start()
        prefixer.stdout("a").feed(line + b"\n")
    reader.join(10)
    os.close(ours)
    assert not prefixer.is_lossy
    assert b"".join(received).lstrip(b".") == b"[a] " + line + b"\n"
