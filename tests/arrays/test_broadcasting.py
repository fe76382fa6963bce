"""``fit`` undoes what broadcasting and promotion did."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telegrad.arrays import fit
from telegrad.arrays.backend import NUMPY
from telegrad.errors import InternalError


@st.composite
def stretched_shapes(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A shape, and one that it broadcasts to."""
    wide = draw(st.lists(st.integers(0, 3), max_size=4).map(tuple))
    kept = wide[draw(st.integers(0, len(wide))) :]
    return tuple(1 if draw(st.booleans()) else length for length in kept), wide


@given(stretched_shapes())
def test_fit_is_the_adjoint_of_broadcasting(shapes: Any) -> None:
    narrow, wide = shapes
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=narrow), rng.normal(size=wide)
    fitted = fit(NUMPY, np.asarray(g), narrow, x.dtype if narrow else np.dtype("float64"))
    assert fitted.shape == narrow
    np.testing.assert_allclose(np.sum(fitted * x), np.sum(g * np.broadcast_to(x, wide)))


def test_a_gradient_that_fits_is_passed_as_it_is() -> None:
    g = np.ones((2, 3))
    assert fit(NUMPY, g, (2, 3), np.dtype("float64")) is g


def test_a_gradient_is_cast_back_to_the_dtype_of_the_input() -> None:
    assert fit(NUMPY, np.ones(2), (2,), np.dtype("float32")).dtype == np.float32


def test_a_real_input_of_a_complex_function_gets_the_real_part() -> None:
    fitted = fit(NUMPY, np.array([1 + 2j, 3 - 4j]), (2,), np.dtype("float32"))
    np.testing.assert_array_equal(fitted, [1, 3])
    assert fitted.dtype == np.float32


@pytest.mark.parametrize(("got", "expected"), [((3,), (2,)), ((2,), (1, 2)), ((2, 3), (2, 2))])
def test_a_shape_that_broadcasting_can_not_have_made_is_a_bug_of_the_rule(
    got: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    with pytest.raises(InternalError, match="the rule that returned it is wrong"):
        fit(NUMPY, np.ones(got), expected, np.dtype("float64"))
