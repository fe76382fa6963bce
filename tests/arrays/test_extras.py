"""The quick kernels that NumPy's backend brings give what the plain ones give."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rules.calls import tuple_of
from tests.rules.samples import SAMPLES
from tests.rules.samples.sample import Sample
from tests.rules.table import TABLE

from telegrad.arrays.backend import NUMPY, Backend
from telegrad.arrays.plain.extras import KERNELS

PLAIN = Backend("plain", np)
"""NumPy with no kernel of its own: every extra in its plain form."""

QUICK = [name for name in KERNELS if not isinstance(getattr(NUMPY, name), partial)]
CASES = [
    (name, sample)
    for name, entry in SAMPLES.items()
    for sample in entry.samples
    if name in QUICK and sample.prepare is None
]


@pytest.mark.parametrize(("name", "sample"), CASES, ids=[f"{n}-{s.label}" for n, s in CASES])
def test_a_quick_kernel_gives_what_the_plain_one_gives(name: str, sample: Sample) -> None:
    row = TABLE[name]
    quick = tuple_of(row.kernel(NUMPY)(*sample.inputs(), **sample.options))
    plain = tuple_of(row.kernel(PLAIN)(*sample.inputs(), **sample.options))
    for got, want in zip(quick, plain, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
        # Places may be counted in any integer dtype; values have theirs.
        assert np.asarray(got).dtype.kind in "iu" or np.asarray(got).dtype == want.dtype


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_index_add_gives_a_place_named_often_all_its_values(
    rows: int, columns: int, count: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, columns))
    values = rng.normal(size=(count, columns))
    index = rng.integers(-rows, rows, size=count)
    expected = x.copy()
    for place, value in zip(index, values):
        expected[place] += value
    np.testing.assert_allclose(NUMPY.index_add(x, values, index=index), expected, atol=1e-12)


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 600), st.integers(0, 2**32 - 1))
def test_index_add_takes_several_index_arrays(
    rows: int, columns: int, count: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, columns))
    values = rng.normal(size=count)
    index = (rng.integers(-rows, rows, size=count), rng.integers(-columns, columns, size=count))
    expected = x.copy()
    for i, j, value in zip(*index, values):
        expected[i, j] += value
    np.testing.assert_allclose(NUMPY.index_add(x, values, index=index), expected, atol=1e-12)


def test_index_add_leaves_its_input_alone() -> None:
    x = np.zeros(3)
    NUMPY.index_add(x, np.ones(2), index=np.array([0, 0]))
    NUMPY.index_add(x, np.ones(2), index=slice(0, 2))
    NUMPY.index_set(x, np.ones(2), index=slice(0, 2))
    np.testing.assert_array_equal(x, [0, 0, 0])
