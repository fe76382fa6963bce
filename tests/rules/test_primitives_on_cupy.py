"""The primitives on CuPy's arrays: the same rules give the same numbers on a CUDA device."""

from typing import Any

import numpy as np
import pytest
from tests.rules.calls import as_function, cases, gradients, leaves, tangents, tuple_of
from tests.rules.samples.sample import Sample
from tests.rules.table import TABLE

from telegrad.tensors import Tensor

cupy = pytest.importorskip("cupy", reason="needs CuPy, which serves arrays of a CUDA device")


def has_device() -> bool:
    try:
        return bool(cupy.cuda.runtime.getDeviceCount() > 0)
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not has_device(), reason="needs a CUDA device"),
]
CASES = cases("strict")


def on_device(array: Any) -> Any:
    return cupy.asarray(np.asarray(array))


def as_numpy(tensor: Tensor) -> Any:
    return cupy.asnumpy(tensor.array)


@pytest.mark.parametrize(
    ("name", "sample"), CASES, ids=[f"{name}-{sample.label}" for name, sample in CASES]
)
def test_a_row_gives_the_same_numbers_on_the_device(name: str, sample: Sample) -> None:
    primitive = TABLE[name]
    function = as_function(primitive, sample)
    arrays = sample.inputs()
    ours, theirs = (
        leaves(primitive, arrays),
        leaves(primitive, [on_device(array) for array in arrays]),
    )
    results = tuple_of(function(*ours))
    weights = [np.ones(y.shape, dtype=y.dtype) for y in results]
    expected = [*results, *gradients(function, ours, weights)[1]]
    found, found_gradients = gradients(function, theirs, [on_device(w) for w in weights])
    for got, want in zip((*found, *found_gradients), expected, strict=True):
        assert isinstance(got.array, cupy.ndarray)
        assert got.dtype == want.dtype
        np.testing.assert_allclose(as_numpy(got), as_numpy(want), rtol=1e-8, atol=1e-10)
    for got, want in zip(tangents(function, theirs), tangents(function, ours), strict=True):
        np.testing.assert_allclose(as_numpy(got), as_numpy(want), rtol=1e-8, atol=1e-10)
