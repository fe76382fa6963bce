"""Gradients of another framework on the wire: as arrays, or as what the framework sent apart."""

from types import SimpleNamespace

import numpy as np
import pytest

from telegrad.distributed import frameworks
from telegrad.distributed.passes.gradient_codec import GradientCodec


class Elsewhere:
    """A gradient in memory that no frame can hold."""

    def __init__(self, value):
        self.value = value


class Fake:
    type = Elsewhere

    def pack(self, gradients, worker, to):
        self.packed = [each.value for each in gradients]
        return [
            np.asarray(each.value) if each.value < 0 else ["apart", worker, to, each.value]
            for each in gradients
        ]

    def unpack(self, facts, worker, frm):
        return [(frm, value) for _, _, _, value in facts]

    def copied(self, gradient):
        return Elsewhere(gradient.value)


@pytest.fixture
def fake(monkeypatch):
    made = Fake()
    monkeypatch.setattr(frameworks, "known", [made])
    return made


def test_those_of_a_group_are_packed_together_and_take_their_places_again(fake):
    codec = GradientCodec("me", None, None)
    local_pass = SimpleNamespace(
        plan=SimpleNamespace(recorded=False), size_of={1: 4, 2: 1}.__getitem__
    )
    group = [
        (SimpleNamespace(message_id=1), [Elsewhere(1.0), None, np.ones(2), Elsewhere(-3.0)]),
        (SimpleNamespace(message_id=2), [Elsewhere(2.0)]),
    ]
    entries, arrays = codec.pack(local_pass, "b", group)
    assert fake.packed == [1.0, -3.0, 2.0]
    assert [array.tolist() for array in arrays] == [[1.0, 1.0], -3.0]
    (first, parts), (second, others) = codec.unpack(local_pass, "b", entries, arrays)
    assert (first, second) == (1, 2)
    assert parts[0] == ("b", 1.0)
    assert parts[1] is None
    assert parts[2].tolist() == [1.0, 1.0]
    assert parts[3].tolist() == -3.0
    assert others == [("b", 2.0)]


def test_a_copy_is_made_of_what_is_another_framework_s_alone(fake):
    given, array = Elsewhere(1.0), np.ones(2)
    assert frameworks.copied(given) is not given
    assert frameworks.copied(array) is array
    assert frameworks.copied(None) is None
