"""A primitive called in other ways than with everything differentiated at once gives the same."""

from typing import Any

import numpy as np
import pytest
from tests.rules.calls import as_function, cases, fast_function, gradients, leaves, tuple_of
from tests.rules.samples import SAMPLES
from tests.rules.samples.sample import Sample
from tests.rules.table import TABLE

import telegrad
from telegrad.rules import Primitive
from telegrad.tensors import Tensor, apply, wrap
from telegrad.testing import gradient_check
from telegrad.testing.derivatives import jvp


def marked(chosen: list[tuple[str, Sample]]) -> Any:
    return pytest.mark.parametrize(
        ("name", "sample"), chosen, ids=[f"{name}-{sample.label}" for name, sample in chosen]
    )


def floating(primitive: Primitive, sample: Sample) -> list[int]:
    return [i for i, x in enumerate(leaves(primitive, sample.inputs())) if x.requires_grad]


OF_SEVERAL = [(n, s) for n, s in cases("reverse") if len(floating(TABLE[n], s)) > 1]
ONE_POINT = [
    (n, s)
    for n, s in cases("second")
    if s.label == "0-d" and not {"reverse", "forward"} & {*s.without}
]
SEVERAL_RESULTS = [
    (n, s) for n, s in cases("reverse") if len(TABLE[n].outputs) > 1 and s.finish is None
]


def frozen(array: Any) -> Any:
    copy = np.array(array)
    copy.flags.writeable = False
    return copy


def ones_like(results: tuple[Tensor, ...]) -> list[Any]:
    return [np.ones(y.shape, dtype=y.dtype) for y in results]


@marked(OF_SEVERAL)
def test_an_input_alone_gets_the_gradient_it_gets_beside_the_others(
    name: str, sample: Sample
) -> None:
    primitive = TABLE[name]
    everything = leaves(primitive, sample.inputs())
    plain = as_function(primitive, sample)
    fast = (
        fast_function(primitive, sample)
        if sample.prepare is None and sample.finish is None
        else None
    )
    results, together = gradients(plain, everything, ones_like(tuple_of(plain(*everything))))
    for place, expected in zip(floating(primitive, sample), together, strict=True):
        alone = [wrap(x.array) for x in everything]
        alone[place].requires_grad_()
        for function in (plain, fast):
            if function is None or tuple_of(function(*alone))[0] is None:
                continue
            _, (found,) = gradients(function, alone, ones_like(results))
            np.testing.assert_allclose(found.array, expected.array, rtol=1e-12, atol=1e-14)


@marked([(n, s) for n, s in OF_SEVERAL if "forward" not in s.without])
def test_tangents_of_the_inputs_one_by_one_add_up_to_that_of_all(name: str, sample: Sample) -> None:
    primitive = TABLE[name]
    arrays = sample.inputs()
    places = floating(primitive, sample)
    function = as_function(primitive, sample)

    def moving(chosen: list[int]) -> list[Any]:
        def of_chosen(*values: Tensor) -> tuple[Tensor, ...]:
            inputs = [wrap(array) for array in arrays]
            for i, value in zip(chosen, values):
                inputs[i] = value
            return tuple_of(function(*inputs))

        values = [wrap(arrays[i]) for i in chosen]
        return [t.array for t in jvp(of_chosen, values, [telegrad.ones_like(x) for x in values])]

    parts = [moving([place]) for place in places]
    for i, expected in enumerate(moving(places)):
        np.testing.assert_allclose(sum(part[i] for part in parts), expected, rtol=1e-9, atol=1e-12)


@marked(cases("reverse"))
def test_nothing_writes_into_what_it_was_given(name: str, sample: Sample) -> None:
    primitive = TABLE[name]
    function = as_function(primitive, sample)
    inputs = leaves(primitive, [frozen(array) for array in sample.inputs()])
    weights = [frozen(weight) for weight in ones_like(tuple_of(function(*inputs)))]
    for create_graph in (False, True):
        gradients(function, inputs, weights, create_graph=create_graph)


@marked(SEVERAL_RESULTS)
def test_each_of_several_results_can_be_differentiated_alone(name: str, sample: Sample) -> None:
    function = as_function(TABLE[name], sample)
    for i in range(len(TABLE[name].outputs)):
        gradient_check(lambda *x, i=i: function(*x)[i], sample.inputs(), order=1)


@marked(ONE_POINT)
def test_third_derivatives_at_one_point_are_right_in_every_mixture(
    name: str, sample: Sample
) -> None:
    gradient_check(as_function(TABLE[name], sample), sample.inputs(), order=3, rtol=1e-5, atol=1e-5)


CONSTANT = [
    primitive
    for primitive in TABLE.values()
    if not primitive.differentiable and primitive.elementwise and not primitive.options
]


@pytest.mark.parametrize("primitive", CONSTANT, ids=lambda primitive: primitive.name)
def test_a_row_without_derivatives_gives_constants(primitive: Primitive) -> None:
    assert primitive.name not in SAMPLES
    shape = (2, 3)
    if primitive.name.startswith("bitwise"):
        inputs = [telegrad.ones(shape, dtype=telegrad.int64) for _ in primitive.inputs]
    elif primitive.name.startswith("logical"):
        inputs = [telegrad.ones(shape, dtype=telegrad.bool) for _ in primitive.inputs]
    else:
        inputs = [telegrad.ones(shape).requires_grad_() for _ in primitive.inputs]
    result = apply(primitive, *inputs)
    assert result.shape == shape
    assert not result.requires_grad
    assert result.dtype.kind in "biuf"
