"""A Python number beside an array combines as the number itself would."""

from typing import Any

import array_api_strict
import numpy as np
import pytest

from telegrad.arrays import scalar_like

FLOAT32 = np.ones(2, dtype=np.float32)


def test_a_number_takes_the_dtype_of_the_array_and_is_remembered() -> None:
    first = scalar_like(0.1, FLOAT32)
    assert first.dtype == np.float32
    assert scalar_like(0.1, FLOAT32) is first
    assert scalar_like(0.1, np.ones(2)).dtype == np.float64


def test_what_is_remembered_can_not_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        scalar_like(0.7, FLOAT32)[...] = 3


def test_what_is_not_a_number_is_never_remembered() -> None:
    nan = float("nan")
    assert scalar_like(nan, FLOAT32) is nan


def test_true_counts_as_one_also_where_one_is_remembered() -> None:
    scalar_like(1, FLOAT32)
    product = FLOAT32 * scalar_like(True, FLOAT32)
    np.testing.assert_array_equal(product, FLOAT32)
    assert product.dtype == np.float32


@pytest.mark.parametrize(("number", "is_negative"), [(0, False), (0.0, False), (-0.0, True)])
def test_a_remembered_zero_has_the_sign_of_its_number(number: Any, is_negative: bool) -> None:
    for zero in (0.0, -0.0, number):
        scalar_like(zero, FLOAT32)
    found = scalar_like(number, FLOAT32)
    assert scalar_like(number, FLOAT32) is found
    assert np.signbit(found) == is_negative


def test_zeros_keep_their_sign() -> None:
    x = np.ones(1)
    scalar_like(0.0, x)
    assert np.signbit(x * scalar_like(-0.0, x))[0]


@pytest.mark.parametrize("array", [np.ones(2, dtype=np.int64), np.ones(2, dtype=np.complex64)])
def test_beside_other_dtypes_a_number_stays_a_number(array: Any) -> None:
    assert scalar_like(2.5, array) == 2.5
    assert type(scalar_like(2.5, array)) is float


@pytest.mark.filterwarnings("ignore:You are comparing a array_api_strict dtype")
def test_beside_arrays_of_other_libraries_a_number_stays_a_number() -> None:
    scalar_like(2.5, np.ones(2, dtype=np.float32))
    assert type(scalar_like(3.25, array_api_strict.ones(2))) is float


def test_more_numbers_than_are_remembered_do_no_harm() -> None:
    x = np.ones(1)
    for i in range(3000):
        assert x * scalar_like(i + 0.5, x) == i + 0.5
