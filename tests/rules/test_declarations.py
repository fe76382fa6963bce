"""What a primitive declares beside its rules is true: ``saves``, ``exact`` and the words."""

from typing import Any

import numpy as np
import pytest
from tests.rules.calls import leaves, tuple_of
from tests.rules.samples import SAMPLES
from tests.rules.samples.sample import Sample
from tests.rules.table import TABLE

import telegrad
from telegrad.arrays.backend import NUMPY
from telegrad.graph import Bundle
from telegrad.rules import LINEAR, NOT_DIFFERENTIABLE, SAME, ZERO, Primitive
from telegrad.rules.primitive import Word
from telegrad.tensors import apply

PRIMITIVES = [
    primitive
    for primitive in TABLE.values()
    if primitive.differentiable and primitive.name in SAMPLES
]
WORDS = (SAME, ZERO, None)


class Reader:
    """Stands for ``s`` in a rule: answers from a node and notes what was asked for."""

    def __init__(self, node: Any) -> None:
        self._node = node
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(self._node, name)


def recorded(primitive: Primitive, sample: Sample) -> Any:
    """The node that the sample's call leaves, and its result; None where nothing is recorded."""
    inputs = leaves(primitive, sample.inputs())
    if sample.prepare is not None:
        inputs = list(sample.prepare(telegrad, *inputs))
    results = tuple_of(apply(primitive, *inputs, **sample.options))
    node = results[0].node
    return (node.edges[0] if primitive.outputs and node is not None else node), results, inputs


def cotangent_of(primitive: Primitive, results: tuple[Any, ...]) -> Any:
    parts: list[Any] = [np.ones(y.shape, dtype=y.dtype) for y in results]
    if primitive.gaps:
        # Vectors are determined up to a phase or not at all, values (with an axis less) always.
        least = min(y.ndim for y in results)
        parts = [part if part.ndim == least else None for part in parts]
    return Bundle(parts) if primitive.outputs else parts[0]


def declared(primitive: Primitive, index: int) -> set[str]:
    return {name.replace(".", "_") for name in primitive.saves[index].split()}


@pytest.mark.parametrize("primitive", PRIMITIVES, ids=lambda primitive: primitive.name)
def test_each_rule_reads_all_that_its_row_saves_for_it_and_nothing_else(
    primitive: Primitive,
) -> None:
    read: dict[int, set[str]] = {}
    for sample in SAMPLES[primitive.name].samples:
        node, results, _ = recorded(primitive, sample)
        if node is None:
            continue
        for index, rule in zip(node.wanted, node.rules):
            seen = read.setdefault(index, set())
            if rule not in WORDS:
                reader = Reader(node)
                g = cotangent_of(primitive, results)
                rule(
                    NUMPY,
                    g if primitive.begin is None else primitive.begin(NUMPY, g, reader),
                    reader,
                )
                seen |= reader.read
    assert read, "no sample of this primitive records anything"
    for index, seen in read.items():
        free = {*primitive.options, *primitive.outputs}
        assert seen - free == declared(primitive, index) - free, f"input {primitive.inputs[index]}"


@pytest.mark.parametrize(
    "primitive", [r for r in PRIMITIVES if r.exact], ids=lambda primitive: primitive.name
)
def test_the_rules_of_an_exact_row_give_the_shape_and_dtype_of_the_input(
    primitive: Primitive,
) -> None:
    for sample in SAMPLES[primitive.name].samples:
        node, results, inputs = recorded(primitive, sample)
        for index, rule in zip(node.wanted, node.rules):
            found = cotangent_of(primitive, results)
            if rule is not SAME:
                begun = found if primitive.begin is None else primitive.begin(NUMPY, found, node)
                found = rule(NUMPY, begun, node)
            assert tuple(found.shape) == inputs[index].shape, sample.label
            assert found.dtype == inputs[index].dtype, sample.label


@pytest.mark.parametrize("primitive", PRIMITIVES, ids=lambda primitive: primitive.name)
def test_a_row_has_both_derivatives_for_the_same_inputs(primitive: Primitive) -> None:
    assert primitive.jvp is not NOT_DIFFERENTIABLE
    assert not isinstance(primitive.jvp, Word)
    assert len(primitive.vjp) == len(primitive.jvp) == len(primitive.inputs) == len(primitive.saves)
    assert [rule is None for rule in primitive.vjp] == [rule is None for rule in primitive.jvp]
    assert LINEAR not in primitive.vjp


@pytest.mark.parametrize("primitive", PRIMITIVES, ids=lambda primitive: primitive.name)
def test_a_rule_that_is_a_word_saves_nothing(primitive: Primitive) -> None:
    for rule, saves in zip(primitive.vjp, primitive.saves):
        assert rule not in WORDS or not saves
