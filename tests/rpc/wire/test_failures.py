"""A remote exception keeps its type, message, traceback and worker."""

import pickle
import sys
import traceback
import types

import msgspec
import pytest

from telegrad.errors import ProtocolViolation, ShapeError
from telegrad.rpc.security.introduction import Limits
from telegrad.rpc.wire.failures import RemoteFailure, dump_failure, load_failure


class Picky(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")


class Long(Exception):
    pass


class Noted(Exception):
    """Its notes can't be told, and no other note can be added."""

    __notes__ = 5


class Secretive(Exception):
    """Nothing can be had of it but its text."""

    def __getattribute__(self, name):
        raise RuntimeError(f"no {name}")


class Homeless(Exception):
    __module__ = None


class Misplaced(Exception):
    __module__ = "\udc80"


class Final:
    def __str__(self):
        raise SystemExit


class Ending(Exception):
    """Its note ends a program that reads it."""

    def __init__(self, *args):
        super().__init__(*args)
        self.__notes__ = [Final()]


def raised(error):
    try:
        raise error
    except BaseException as caught:
        return caught


def there_and_back(error, *, strict=False):
    return load_failure(dump_failure(raised(error), "ps", strict=strict), strict=strict)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("error", [KeyError("k"), ShapeError("bad shape"), ZeroDivisionError("z")])
def test_the_type_and_message_are_kept(error, strict):
    back = there_and_back(error, strict=strict)
    assert type(back) is type(error)
    assert str(error).strip("'") in str(back)


def test_the_note_has_the_worker_and_the_remote_traceback():
    back = there_and_back(ValueError("x"))
    assert "raised on worker 'ps'" in back.__notes__[0]
    assert "in raised" in back.__notes__[0]


@pytest.mark.parametrize(("strict_there", "strict_here"), [(0, 0), (1, 1), (0, 1)])
@pytest.mark.parametrize("make", [lambda: ValueError("x"), lambda: Picky(1, 2)])
def test_a_failure_that_comes_back_through_many_workers_names_each_of_them_once(
    make, strict_there, strict_here
):
    error = make()
    for number in range(30):
        sent = dump_failure(raised(error), f"worker{number}", strict=bool(strict_there))
        error = load_failure(sent, strict=bool(strict_here))
    told = "".join(traceback.format_exception(error))
    for number in range(30):
        assert told.count(f"raised on worker 'worker{number}'") == 1
    assert told.count("in raised") == 30
    assert str(error).count("RemoteFailure") == 0


def test_an_exception_that_cannot_be_pickled_says_what_it_was():
    back = there_and_back(Picky(1, 2))
    assert isinstance(back, RemoteFailure)
    assert "Picky: 1 and 2" in str(back)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("kind", [Noted, Secretive, Homeless, Misplaced, Ending])
def test_an_exception_that_does_not_let_itself_be_told_gets_through(kind, strict):
    back = there_and_back(kind("x"), strict=strict)
    assert f"{kind.__qualname__}: x" in f"{type(back).__qualname__}: {back}"
    assert "raised on worker 'ps'" in back.__notes__[-1]


def leave(kind):
    raise kind("as it was unpickled")


class TerminationDetector:
    def __init__(self, kind):
        self.kind = kind

    def __reduce__(self):
        return leave, (self.kind,)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_exception_that_would_end_a_program_as_it_is_unpickled_gets_through(kind):
    back = there_and_back(ValueError(TerminationDetector(kind)))
    assert type(back) is ValueError
    assert "TerminationDetector object" in str(back)


class Mute(Exception):
    def __str__(self):
        raise self.args[0]

    __repr__ = __str__


@pytest.mark.parametrize("why", [RuntimeError("no text"), SystemExit(1), Mute(RuntimeError())])
def test_an_exception_without_a_text_is_told_of_all_the_same(why):
    back = there_and_back(Mute(why), strict=True)
    assert f"Mute: <its text can't be had: {type(why).__qualname__}>" in str(back)


def test_an_exception_that_takes_more_than_a_message_says_what_it_was():
    back = there_and_back(UnicodeDecodeError("ascii", b"\xff", 0, 1, "why"), strict=True)
    assert isinstance(back, RemoteFailure)
    assert str(back).startswith("UnicodeDecodeError: 'ascii' codec can't decode byte 0xff")


def test_an_exception_of_a_module_that_is_not_here_says_what_it_was(monkeypatch):
    module = types.ModuleType("only_there")
    exec("class Gone(Exception):\n    pass", vars(module))
    monkeypatch.setitem(sys.modules, "only_there", module)
    data = dump_failure(raised(module.Gone("far away")), "ps", strict=False)
    monkeypatch.delitem(sys.modules, "only_there")
    back = load_failure(data, strict=False)
    assert isinstance(back, RemoteFailure)
    assert str(back) == "only_there.Gone: far away"


def test_a_strict_worker_does_not_rebuild_foreign_types():
    data = dump_failure(raised(Picky(1, 2)), "ps", strict=False)
    assert type(load_failure(data, strict=True)) is RemoteFailure


def test_a_malformed_failure_is_a_violation():
    with pytest.raises(ProtocolViolation, match="malformed failure"):
        load_failure(b"\x01\x02", strict=False)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("kind", [ValueError, Long])
def test_a_failure_of_any_size_fits_into_a_header(kind, strict):
    data = dump_failure(raised(kind("é" * (1 << 25) + "the end")), "ps", strict=strict)
    assert len(data) < Limits().header_bytes // 4
    back = load_failure(data, strict=strict)
    assert type(back) is (ValueError if kind is ValueError else RemoteFailure)
    assert "characters left out" in str(back)
    assert str(back).endswith("the end")


@pytest.mark.parametrize("strict", [True, False])
def test_a_message_that_is_no_valid_text_gets_through(strict):
    back = there_and_back(ValueError("caf\udce9"), strict=strict)
    assert type(back) is ValueError
    assert "\\udce9" in back.__notes__[0]


class Stop(BaseException):
    pass


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, Stop])
def test_what_would_end_a_program_is_told_of_by_an_exception(kind, strict):
    back = there_and_back(kind("enough"), strict=strict)
    assert type(back) is RemoteFailure
    assert str(back).endswith(f"{kind.__qualname__}: enough")
    assert "in raised" in back.__notes__[0]


def test_a_peer_that_sends_what_would_end_this_program_does_not():
    sent = msgspec.msgpack.decode(dump_failure(raised(ValueError("x")), "ps", strict=False))
    sent[5] = pickle.dumps(SystemExit(3))
    back = load_failure(msgspec.msgpack.encode(sent), strict=False)
    assert isinstance(back, Exception)
