"""Which namespace serves a raw array, and what it offers."""

import math
from typing import Any

import array_api_strict
import numpy as np
import pytest

from telegrad.arrays import backend_of, backend_of_type
from telegrad.arrays.backend import NUMPY, Backend
from telegrad.arrays.plain.extras import KERNELS
from telegrad.arrays.standard import CREATION, ELEMENTWISE, FFT, LINALG, OTHER
from telegrad.errors import DTypeError

STRICT = backend_of(array_api_strict.ones(2))


def test_numpy_serves_its_arrays_and_scalars() -> None:
    assert backend_of(np.ones(2)) is NUMPY
    assert backend_of(np.float32(1)) is NUMPY
    assert backend_of_type(np.ndarray) is NUMPY


def test_a_subclass_of_numpys_array_is_served_by_numpy() -> None:
    class Marked(np.ndarray[Any, Any]):
        pass

    assert backend_of(np.ones(2).view(Marked)) is NUMPY


def test_another_library_is_found_once_and_remembered() -> None:
    assert backend_of(array_api_strict.zeros(3)) is STRICT
    assert backend_of_type(type(array_api_strict.zeros(3))) is STRICT


def test_what_is_no_array_is_refused() -> None:
    with pytest.raises(DTypeError, match=r"got list; convert it with telegrad.asarray first"):
        backend_of([1.0, 2.0])


@pytest.mark.parametrize("backend", [NUMPY, STRICT], ids=repr)
def test_a_backend_has_all_of_the_standard_and_the_extras(backend: Backend) -> None:
    for name in (*ELEMENTWISE, *CREATION, *OTHER, *KERNELS):
        assert callable(getattr(backend, name)), name
    for name in LINALG:
        assert callable(getattr(backend.linalg, name)), name
    for name in FFT:
        assert callable(getattr(backend.fft, name)), name
    assert (backend.e, backend.pi, backend.inf) == (math.e, math.pi, math.inf)
    assert math.isnan(backend.nan)


@pytest.mark.parametrize("backend", [NUMPY, STRICT], ids=repr)
def test_dtypes_are_numpys_on_every_backend(backend: Backend) -> None:
    float32, complex64 = np.dtype("float32"), np.dtype("complex64")
    made = backend.zeros((2,), dtype=float32)
    assert backend.dtype_of(made) == float32
    assert backend.dtype_of(backend.astype(made, complex64)) == complex64
    assert backend.isdtype(made.dtype, "real floating")
    assert not backend.isdtype(complex64, "real floating")
    assert backend.dtype_of(backend.sum(made, dtype=np.dtype("float64"))) == np.float64
    assert backend.finfo(made.dtype).bits == 32


def test_conj_of_a_real_array_is_the_array_itself() -> None:
    x = np.ones(3)
    assert NUMPY.conj(x) is x
    np.testing.assert_array_equal(NUMPY.conj(np.array([1 + 2j])), [1 - 2j])
