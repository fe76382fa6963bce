"""What a row declares beside its rules is true: ``saves``, ``exact`` and the words."""

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

ROWS = [row for row in TABLE.values() if row.differentiable and row.name in SAMPLES]
WORDS = (SAME, ZERO, None)


class Reader:
    """Stands for ``s`` in a rule: answers from a node and notes what was asked for."""

    def __init__(self, node: Any) -> None:
        self._node = node
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(self._node, name)


def recorded(row: Primitive, sample: Sample) -> Any:
    """The node that the sample's call leaves, and its result; None where nothing is recorded."""
    inputs = leaves(row, sample.inputs())
    if sample.prepare is not None:
        inputs = list(sample.prepare(telegrad, *inputs))
    results = tuple_of(apply(row, *inputs, **sample.options))
    node = results[0].node
    return (node.edges[0] if row.outputs and node is not None else node), results, inputs


def cotangent_of(row: Primitive, results: tuple[Any, ...]) -> Any:
    parts: list[Any] = [np.ones(y.shape, dtype=y.dtype) for y in results]
    if row.gaps:
        # Vectors are determined up to a phase or not at all, values (with an axis less) always.
        least = min(y.ndim for y in results)
        parts = [part if part.ndim == least else None for part in parts]
    return Bundle(parts) if row.outputs else parts[0]


def declared(row: Primitive, index: int) -> set[str]:
    return {name.replace(".", "_") for name in row.saves[index].split()}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_rule_reads_all_that_its_row_saves_for_it_and_nothing_else(row: Primitive) -> None:
    read: dict[int, set[str]] = {}
    for sample in SAMPLES[row.name].samples:
        node, results, _ = recorded(row, sample)
        if node is None:
            continue
        for index, rule in zip(node.wanted, node.rules):
            seen = read.setdefault(index, set())
            if rule not in WORDS:
                reader = Reader(node)
                g = cotangent_of(row, results)
                rule(NUMPY, g if row.begin is None else row.begin(NUMPY, g, reader), reader)
                seen |= reader.read
    assert read, "no sample of this row records anything"
    for index, seen in read.items():
        free = {*row.options, *row.outputs}
        assert seen - free == declared(row, index) - free, f"input {row.inputs[index]}"


@pytest.mark.parametrize("row", [r for r in ROWS if r.exact], ids=lambda row: row.name)
def test_the_rules_of_an_exact_row_give_the_shape_and_dtype_of_the_input(row: Primitive) -> None:
    for sample in SAMPLES[row.name].samples:
        node, results, inputs = recorded(row, sample)
        for index, rule in zip(node.wanted, node.rules):
            found = cotangent_of(row, results)
            if rule is not SAME:
                begun = found if row.begin is None else row.begin(NUMPY, found, node)
                found = rule(NUMPY, begun, node)
            assert tuple(found.shape) == inputs[index].shape, sample.label
            assert found.dtype == inputs[index].dtype, sample.label


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_has_both_derivatives_for_the_same_inputs(row: Primitive) -> None:
    assert row.jvp is not NOT_DIFFERENTIABLE
    assert not isinstance(row.jvp, Word)
    assert len(row.vjp) == len(row.jvp) == len(row.inputs) == len(row.saves)
    assert [rule is None for rule in row.vjp] == [rule is None for rule in row.jvp]
    assert LINEAR not in row.vjp


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_rule_that_is_a_word_saves_nothing(row: Primitive) -> None:
    for rule, saves in zip(row.vjp, row.saves):
        assert rule not in WORDS or not saves
