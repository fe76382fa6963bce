"""The primitives under another namespace: array-api-strict has what the standard says, and no more.

So a rule that reached for NumPy, or for something beyond the standard, would fail here.
"""

from typing import Any

import array_api_strict
import numpy as np
import pytest
from tests.rules.calls import as_function, cases, gradients, leaves, tangents, tuple_of
from tests.rules.samples.sample import Sample
from tests.rules.table import TABLE

from telegrad.arrays import backend_of
from telegrad.tensors import Tensor, wrap

CASES = cases("strict")

# Telegrad's dtypes are NumPy's: looking one up beside another library's compares them.
pytestmark = pytest.mark.filterwarnings("ignore:You are comparing a array_api_strict dtype")


def as_strict(array: Any) -> Any:
    return array_api_strict.asarray(np.asarray(array))


def as_numpy(tensor: Tensor) -> Any:
    return np.asarray(tensor.array)


def test_an_array_of_another_library_is_served_by_its_own_namespace() -> None:
    backend = backend_of(array_api_strict.ones(3))
    assert backend.namespace is array_api_strict.ones(3).__array_namespace__()
    assert not backend.is_numpy


@pytest.mark.parametrize(
    ("name", "sample"), CASES, ids=[f"{name}-{sample.label}" for name, sample in CASES]
)
def test_a_row_gives_the_same_numbers_under_array_api_strict(name: str, sample: Sample) -> None:
    primitive = TABLE[name]
    function = as_function(primitive, sample)
    arrays = sample.inputs()
    ours, theirs = (
        leaves(primitive, arrays),
        leaves(primitive, [as_strict(array) for array in arrays]),
    )
    results = tuple_of(function(*ours))
    weights = [np.ones(y.shape, dtype=y.dtype) for y in results]
    strict_weights = [as_strict(weight) for weight in weights]
    expected = [*results, *gradients(function, ours, weights)[1]]
    for create_graph in (False, True):
        found, found_gradients = gradients(
            function, theirs, strict_weights, create_graph=create_graph
        )
        for got, want in zip((*found, *found_gradients), expected, strict=True):
            assert isinstance(got.array, type(as_strict(0.0)))
            assert got.dtype == want.dtype
            np.testing.assert_allclose(as_numpy(got), as_numpy(want), rtol=1e-10, atol=1e-12)
    for got, want in zip(tangents(function, theirs), tangents(function, ours), strict=True):
        np.testing.assert_allclose(as_numpy(got), as_numpy(want), rtol=1e-10, atol=1e-12)
        assert wrap(got.array).dtype == want.dtype
