"""Gradients of another framework on the wire: as arrays, or as what the framework sent apart."""

from types import SimpleNamespace

import numpy as np
import pytest

from telegrad.distributed import frameworks
from telegrad.distributed.passes.gradient_codec import GradientCodec
from telegrad.errors import ProtocolViolation


class Elsewhere:
    """A gradient in memory that no frame can hold."""

    def __init__(self, value):
        self.value = value


class Abroad(Elsewhere):
    """One of another framework, which this worker knows as well."""


class Devices:
    def __init__(self, type_):
        self.type = type_
        self.packed = []

    def carries(self, gradient):
        return type(gradient) is self.type

    def pack(self, gradients, worker, to):
        self.packed += [each.value for each in gradients]
        return [
            np.asarray(each.value) if each.value < 0 else ["apart", worker, to, each.value]
            for each in gradients
        ]

    def unpack(self, facts, worker, frm):
        return [(self.type, frm, value) for _, _, _, value in facts]


def framework(type_, module):
    type_.__module__ = module
    namespace = SimpleNamespace(clone=lambda gradient: type_(gradient.value))
    return SimpleNamespace(type=type_, namespace=namespace, devices=Devices(type_))


@pytest.fixture
def fake(monkeypatch):
    made = framework(Elsewhere, "elsewhere")
    without = SimpleNamespace(type=bytes, devices=None)
    monkeypatch.setattr(frameworks, "known", [without, framework(Abroad, "abroad.arrays"), made])
    return made.devices


def test_those_of_a_group_are_packed_together_and_take_their_places_again(fake):
    codec = GradientCodec("me", None, None)
    local_pass = SimpleNamespace(
        plan=SimpleNamespace(recorded=False), size_of={1: 4, 2: 2}.__getitem__
    )
    group = [
        (SimpleNamespace(message_id=1), [Elsewhere(1.0), None, np.ones(2), Elsewhere(-3.0)]),
        (SimpleNamespace(message_id=2), [Elsewhere(2.0), Abroad(4.0)]),
    ]
    entries, arrays = codec.pack(local_pass, "b", group)
    assert fake.packed == [1.0, -3.0, 2.0]
    assert [array.tolist() for array in arrays] == [[1.0, 1.0], -3.0]
    (first, parts), (second, others) = codec.unpack(local_pass, "b", entries, arrays)
    assert (first, second) == (1, 2)
    assert parts[0] == (Elsewhere, "b", 1.0)
    assert parts[1] is None
    assert parts[2].tolist() == [1.0, 1.0]
    assert parts[3].tolist() == -3.0
    assert others == [(Elsewhere, "b", 2.0), (Abroad, "b", 4.0)]


def test_gradients_of_a_framework_that_was_never_sent_to_are_a_breach(fake):
    with pytest.raises(ProtocolViolation, match="worker 'b' sent gradients of 'nowhere'"):
        frameworks.unpack([["nowhere", 1]], "me", "b")
    with pytest.raises(ProtocolViolation, match="whose values it was never sent"):
        frameworks.unpack([["builtins", 1]], "me", "b")


def test_a_copy_is_made_of_what_is_another_framework_s_alone(fake):
    given, array = Elsewhere(1.0), np.ones(2)
    assert frameworks.copied(given) is not given
    assert frameworks.copied(array) is array
    assert frameworks.copied(None) is None
