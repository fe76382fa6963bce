"""The same checks for every primitive of the table, on the samples of ``tests/rules/samples``."""

from typing import Any

import numpy as np
import pytest
from tests.rules.calls import (
    as_function,
    cases,
    fast_function,
    gradients,
    in_general,
    leaves,
    numpy_reference,
    tangents,
    tuple_of,
)
from tests.rules.samples import SAMPLES
from tests.rules.samples.sample import Sample
from tests.rules.table import TABLE

import telegrad
from telegrad.testing import gradient_check

DIFFERENTIABLE = [name for name, primitive in TABLE.items() if primitive.differentiable]
NARROW = {"float64": np.float32, "complex128": np.complex64}


def each(check: str) -> Any:
    """Runs a test for every sample that can do the check."""
    chosen = cases(check)
    return pytest.mark.parametrize(
        ("name", "sample"), chosen, ids=[f"{name}-{sample.label}" for name, sample in chosen]
    )


def narrowed(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a.astype(NARROW.get(a.dtype.name, a.dtype)) for a in arrays)


def weights_like(results: tuple[Any, ...]) -> list[Any]:
    rng = np.random.default_rng(3)
    made = []
    for y in results:
        weight = rng.normal(size=y.shape)
        if y.dtype.kind == "c":
            weight = weight + 1j * rng.normal(size=y.shape)
        made.append(np.asarray(weight, dtype=y.dtype))
    return made


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_a_differentiable_row_has_samples(name: str) -> None:
    assert name in SAMPLES, f"add an entry for {name} to tests/rules/samples"
    assert SAMPLES[name].samples


def test_every_entry_belongs_to_a_row() -> None:
    assert [name for name in SAMPLES if name not in TABLE] == []


def test_every_excuse_gives_its_reason() -> None:
    excuses = [
        reason
        for entry in SAMPLES.values()
        for sample in entry.samples
        for reason in sample.without.values()
    ]
    excuses += [entry.no_numpy for entry in SAMPLES.values() if entry.no_numpy]
    assert all(len(reason) > 10 for reason in excuses)


@each("numpy")
def test_values_are_those_of_numpy(name: str, sample: Sample) -> None:
    primitive, entry = TABLE[name], SAMPLES[name]
    arrays = sample.inputs()
    found = tuple_of(as_function(primitive, sample)(*leaves(primitive, arrays)))
    if sample.prepare is not None:
        arrays = sample.prepare(np, *arrays)
    expected = numpy_reference(name, entry)(*arrays, **sample.options)
    if sample.finish is not None:
        expected = sample.finish(np, *tuple_of(expected))
    for got, want in zip(found, tuple_of(expected), strict=True):
        np.testing.assert_allclose(got.array, want, rtol=1e-12, atol=1e-12)
        assert got.dtype == np.asarray(want).dtype


@pytest.mark.parametrize(
    ("name", "sample"),
    both := [
        (n, s)
        for n, e in SAMPLES.items()
        for s in e.samples
        if n in TABLE and not {"reverse", "forward"} <= set(s.without)
    ],
    ids=[f"{n}-{s.label}" for n, s in both],
)
def test_both_derivatives_agree_with_differences_to_second_order(name: str, sample: Sample) -> None:
    gradient_check(
        as_function(TABLE[name], sample),
        sample.inputs(),
        modes=[mode for mode in ("reverse", "forward") if mode not in sample.without],
        order=1 if "second" in sample.without else 2,
    )


@each("float32")
def test_float32_stays_float32_in_both_modes(name: str, sample: Sample) -> None:
    primitive = TABLE[name]
    function = as_function(primitive, sample)
    wide = leaves(primitive, sample.inputs())
    narrow = leaves(primitive, narrowed(sample.inputs()))
    expected, expected_gradients = gradients(
        function, wide, weights := weights_like(tuple_of(function(*wide)))
    )
    weights = [w.astype(r.dtype) for w, r in zip(weights, tuple_of(function(*narrow)))]
    found, found_gradients = gradients(function, narrow, weights)
    is_cast = name == "astype"
    for got, want in zip(found, expected, strict=True):
        assert is_cast or got.dtype == NARROW.get(want.dtype.name, want.dtype)
        np.testing.assert_allclose(got.array, want.array, rtol=1e-3, atol=1e-4)
    inputs = [x for x in narrow if x.requires_grad]
    for x, got, want in zip(inputs, found_gradients, expected_gradients, strict=True):
        assert (got.dtype, got.shape) == (x.dtype, x.shape)
        np.testing.assert_allclose(got.array, want.array, rtol=1e-2, atol=1e-3)
    for result, tangent in zip(found, tangents(function, narrow), strict=True):
        assert (tangent.dtype, tangent.shape) == (result.dtype, result.shape)


@each("reverse")
def test_shortcuts_give_the_same_bits_as_the_general_path(name: str, sample: Sample) -> None:
    primitive = TABLE[name]
    plain = as_function(primitive, sample)
    fast = fast_function(primitive, sample)
    inputs = leaves(primitive, sample.inputs())
    weights = weights_like(tuple_of(plain(*inputs)))
    expected, expected_gradients = gradients(in_general(plain), inputs, weights)
    for function in (plain, fast if sample.prepare is None and sample.finish is None else None):
        if function is None or (function is fast and tuple_of(fast(*inputs))[0] is None):
            continue
        found, found_gradients = gradients(function, inputs, weights)
        for got, want in zip((*found, *found_gradients), (*expected, *expected_gradients)):
            assert got.dtype == want.dtype
            assert got.shape == want.shape
            assert np.asarray(got.array).tobytes() == np.asarray(want.array).tobytes()
        with telegrad.no_grad():
            unrecorded = tuple_of(function(*inputs))
        for got, want in zip(unrecorded, expected, strict=True):
            assert not got.requires_grad
            assert np.asarray(got.array).tobytes() == np.asarray(want.array).tobytes()


@each("forward")
def test_forward_mode_by_shortcuts_is_that_of_the_general_path(name: str, sample: Sample) -> None:
    primitive = TABLE[name]
    plain = as_function(primitive, sample)
    fast = (
        fast_function(primitive, sample)
        if sample.prepare is None and sample.finish is None
        else None
    )
    inputs = leaves(primitive, sample.inputs())
    expected = tangents(in_general(plain), inputs)
    for function in (plain, fast):
        if function is None or tuple_of(function(*inputs))[0] is None:
            continue
        for got, want in zip(tangents(function, inputs), expected, strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            np.testing.assert_allclose(got.array, want.array, rtol=1e-12, atol=1e-14)
        with telegrad.no_grad():
            quiet = tangents(function, inputs)
        for got, want in zip(quiet, expected, strict=True):
            np.testing.assert_allclose(got.array, want.array, rtol=1e-12, atol=1e-14)


NEVER_EMPTY = {"gru_scan": "its inputs lie packed in one vector, which is never empty"}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_the_samples_of_a_row_cover_the_shapes_it_takes(name: str) -> None:
    primitive = TABLE[name]
    drawn = [sample.inputs() for sample in SAMPLES[name].samples]
    if name not in NEVER_EMPTY:
        assert any(array.size == 0 for arrays in drawn for array in arrays), "zero-size"
    if primitive.elementwise:
        assert any(all(array.ndim == 0 for array in arrays) for arrays in drawn), "0-d"
        shapes = [{array.shape for array in arrays} for arrays in drawn]
        assert len(primitive.inputs) == 1 or any(len(each) > 1 for each in shapes), "broadcast"
