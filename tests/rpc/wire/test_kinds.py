"""Registered types travel as raw arrays with metadata, and so do their subclasses."""

import importlib
import sys
from functools import partial

import msgspec
import numpy as np
import pytest

from telegrad.errors import Unserializable, UsageError
from telegrad.rpc.security.introduction import Limits
from telegrad.rpc.wire import kinds
from telegrad.rpc.wire.codec import Codec


class Quantity:
    def __init__(self, value, unit):
        self.value, self.unit = value, unit


class Special(Quantity):
    pass


kinds.register(
    Quantity,
    lambda q: ([q.value], q.unit),
    lambda parts, unit: Quantity(parts[0], unit),
    tag="tests.Quantity",
)


def travel(value):
    codec = Codec()
    header, buffers = codec.seal(codec.pack_result(value), None)
    buffers = [memoryview(bytearray(buffer)) for buffer in buffers]
    sealed, slots = codec.unseal(header, buffers, Limits())
    return codec.open_result(sealed, slots, buffers)


@pytest.mark.parametrize("make", [Quantity, Special])
def test_a_registered_type_and_its_subclass_travel_by_parts(make):
    back = travel({"deep": [make(np.arange(3), "m")]})["deep"][0]
    assert type(back) is Quantity
    assert back.unit == "m"
    assert back.value.tolist() == [0, 1, 2]


def test_a_tag_stands_for_one_type():
    with pytest.raises(UsageError, match="already stands for Quantity"):
        kinds.register(int, lambda _: ([], None), lambda _, __: 0, tag="tests.Quantity")


def test_a_lazy_kind_is_loaded_when_its_module_is_met():
    loaded = []
    kinds.register_lazily("fractions", lambda: loaded.append(True))
    import fractions

    assert kinds.find(fractions.Fraction) is None
    assert kinds.find(fractions.Fraction) is None
    assert loaded == [True]


def test_all_kinds_whose_modules_are_imported_are_loaded_together():
    loaded = []
    for module in ("graphlib", "colorsys"):
        importlib.import_module(module)
        kinds.register_lazily(module, partial(loaded.append, module))
    kinds.load_imported()
    assert loaded == ["graphlib", "colorsys"]


@pytest.mark.parametrize(("strict", "imported"), [(True, False), (False, True)])
def test_the_kind_of_a_module_that_was_never_imported_is_loaded_by_lenient_workers_only(
    strict, imported
):
    loaded = []
    kinds.register_lazily("never_imported", lambda: loaded.append(True))
    header = msgspec.msgpack.encode([None, None, [], [["never_imported.X", 0, 0]]])
    with pytest.raises(Unserializable, match=r"never_imported\.X"):
        Codec(strict=strict).unseal(header, [], Limits())
    assert bool(loaded) is imported


def test_a_strict_worker_loads_the_kind_of_a_module_that_it_has_imported_itself():
    loaded = []
    kinds.register_lazily("decimal", lambda: loaded.append(True))
    import decimal  # noqa: F401

    header = msgspec.msgpack.encode([None, None, [], [["decimal.X", 0, 0]]])
    with pytest.raises(Unserializable, match=r"decimal\.X"):
        Codec(strict=True).unseal(header, [], Limits())
    assert loaded


def test_an_unregistered_tag_is_named_at_the_receiver():
    class Local(Quantity):
        pass

    kinds.register(Local, lambda q: ([], 1), lambda p, m: Local(0, ""), tag="lib.module.Local")
    codec = Codec()
    header, buffers = codec.seal(codec.pack_result(Local(1, "")), None)
    header = header.replace(b"lib.module.Local", b"lib.module.Lokal")
    with pytest.raises(Unserializable, match=r"'lib\.module\.Lokal'.*not registered here"):
        codec.unseal(header, buffers, Limits())


def test_what_waits_for_an_imported_module_is_loaded_without_a_value_of_it():
    loaded = []
    kinds.register_lazily("calendar", lambda: loaded.append("calendar"))
    kinds.register_lazily("never_imported_either", lambda: loaded.append("never"))
    import calendar  # noqa: F401

    kinds.load_imported()
    kinds.load_imported()
    assert loaded == ["calendar"]


@pytest.mark.parametrize("why", [UsageError("too old"), AttributeError("a stub")], ids=repr)
def test_a_module_that_will_not_do_is_refused_only_where_a_value_of_it_is_met(why):
    tried = []

    def refuse():
        tried.append(True)
        raise why

    kinds.register_lazily("colorsys", refuse)
    import colorsys

    try:
        kinds.load_imported()
        kinds.load_imported()
        assert tried == [True]
        met = type("Met", (), {"__module__": colorsys.__name__})
        with pytest.raises(type(why), match=str(why)):
            kinds.find(met)
    finally:
        kinds._lazy.pop("colorsys")


def test_a_module_that_the_program_forbids_to_import_is_not_loaded(monkeypatch):
    loaded = []
    monkeypatch.setitem(sys.modules, "forbidden", None)
    kinds.register_lazily("forbidden", lambda: loaded.append(True))
    kinds.load_imported()
    kinds.load_imported()
    assert not loaded


def test_a_module_is_not_loaded_before_it_has_been_imported(monkeypatch, tmp_path):
    """What its import runs, a finalizer say, may make a call."""
    during = []
    kinds.register_lazily("half_imported", lambda: during.append("loaded"))
    monkeypatch.setattr(kinds, "said", during.append, raising=False)
    (tmp_path / "half_imported.py").write_text(
        "from telegrad.rpc.wire import kinds\nkinds.load_imported()\nkinds.said('imported')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("half_imported")
    kinds.load_imported()
    assert during == ["imported", "loaded"]
