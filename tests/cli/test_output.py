"""Lines of many workers on one terminal."""

import io

import pytest

from telegrad.cli.output import Prefixer


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
    Prefixer(["a"], ClosedPipe(), io.BytesIO()).stdout("a").feed(b"x\n")
