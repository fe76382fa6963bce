"""Dtypes: names, promotion, limits, and what the namespace says about itself."""

import operator
import threading
from typing import Any

import numpy as np
import pytest

import telegrad as tg
from telegrad.errors import DeviceError, DTypeError, UsageError


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((tg.int8, tg.int16), "int16"),
        ((tg.uint8, tg.int8), "int16"),
        ((tg.float32, tg.float64), "float64"),
        ((tg.float64, tg.complex64), "complex128"),
        ((tg.int64, tg.float32), "float32"),
        ((tg.bool, tg.uint8), "uint8"),
        ((tg.ones(1), tg.int8), "float32"),
        ((tg.float32, 1.5), "float32"),
        ((tg.int8, 1), "int8"),
        ((tg.int64, 1.5), "float32"),
        ((tg.float64, 1j), "complex128"),
        ((1, 2.0), "float32"),
        ((True, tg.bool), "bool"),
    ],
)
def test_dtypes_promote_in_either_order(values: tuple[Any, ...], expected: str) -> None:
    assert tg.result_type(*values) == np.dtype(expected)
    assert tg.result_type(*values[::-1]) == np.dtype(expected)


@pytest.mark.parametrize(
    ("x", "other", "expected"),
    [
        (tg.ones(1), tg.arange(1), "float32"),
        (tg.ones(1), 2, "float32"),
        (tg.arange(1), 2.5, "float32"),
        (tg.arange(1, dtype=tg.int8), 3, "int8"),
        (tg.ones(1, dtype=tg.float64), tg.ones(1), "float64"),
        (tg.ones(1), 1j, "complex64"),
        (tg.ones(1), 2 + 0j, "complex64"),
        (tg.ones(1, dtype=tg.float64), 1j, "complex128"),
    ],
)
def test_operators_promote_as_result_type_says(x: Any, other: Any, expected: str) -> None:
    for result in (x + other, other + x, x * other, tg.add(x, other)):
        assert result.dtype == np.dtype(expected)
    assert tg.result_type(x, other) == np.dtype(expected)


def test_casts_that_promotion_can_do_are_possible() -> None:
    assert tg.can_cast(tg.int8, tg.int16)
    assert tg.can_cast(tg.ones(1), tg.complex64)
    assert not tg.can_cast(tg.float64, tg.float32)
    assert not tg.can_cast(tg.complex64, tg.float64)


def test_limits_are_python_numbers() -> None:
    info = tg.finfo(tg.float32)
    assert (info.bits, info.dtype) == (32, tg.float32)
    assert info.eps == 2.0**-23
    assert type(info.max) is float
    assert tg.finfo(tg.ones(1, dtype=tg.complex128)).bits == 64
    assert tg.iinfo(tg.uint8) == (8, 255, 0, tg.uint8)
    with pytest.raises(DTypeError, match="iinfo"):
        tg.finfo(tg.int8)
    with pytest.raises(DTypeError, match="finfo"):
        tg.iinfo(tg.float32)


def test_isdtype_knows_the_kinds_of_the_standard() -> None:
    assert tg.isdtype(tg.float32, "real floating")
    assert tg.isdtype(tg.int8, ("bool", "signed integer"))
    assert tg.isdtype(tg.int8, tg.int8)
    assert not tg.isdtype(tg.complex64, "real floating")
    with pytest.raises(DTypeError, match="banana"):
        tg.isdtype(tg.float32, "banana")


def test_astype_is_differentiated_and_copies_when_told() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    tg.astype(x, tg.float64).sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == tg.float32
    assert tg.astype(x, tg.float32, copy=False) is x
    assert tg.astype(x, tg.float32) is not x
    assert not tg.astype(x, tg.int64).requires_grad


def test_the_namespace_tells_what_it_has() -> None:
    info = tg.__array_namespace_info__()
    assert info.capabilities()["boolean indexing"]
    assert info.default_device() == "cpu"
    assert info.devices()[0] == "cpu"
    assert info.default_dtypes()["real floating"] == tg.float32
    assert set(info.dtypes(kind="complex floating")) == {"complex64", "complex128"}
    assert len(info.dtypes()) == 13
    with pytest.raises(DeviceError, match="mars"):
        info.dtypes(device="mars")


def test_a_tensor_names_its_namespace() -> None:
    x = tg.ones(1)
    assert x.__array_namespace__() is tg
    assert x.__array_namespace__(api_version="2024.12") is tg
    with pytest.raises(UsageError, match=r"1999\.1"):
        x.__array_namespace__(api_version="1999.1")
    assert x.to_device("cpu") is x
    with pytest.raises(DeviceError, match="mars"):
        x.to_device("mars")


@pytest.mark.parametrize("number", [-100, 300])
@pytest.mark.parametrize("name", ["uint8", "int8"])
def test_small_integers_are_compared_with_numbers_beyond_them(name: str, number: int) -> None:
    values = np.array([0, 1, 100], dtype=name)
    x = tg.asarray(values)
    for compare in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
        assert compare(x, number).tolist() == compare(values, number).tolist()
        assert compare(number, x).tolist() == compare(number, values).tolist()


def test_a_number_that_the_dtype_does_not_hold_is_no_summand() -> None:
    with pytest.raises(OverflowError, match="300 out of bounds for uint8"):
        tg.asarray(np.array([1], dtype="uint8")) + 300


@pytest.mark.parametrize("number", [-100, 300, 2**70])
@pytest.mark.parametrize("name", ["uint8", "int8", "int64"])
def test_small_integers_are_divided_by_numbers_beyond_them(name: str, number: int) -> None:
    values = np.array([1, 2, 100], dtype=name)
    x = tg.asarray(values)
    for found, expected in [
        (x / number, values / number),
        (number / x, number / values),
        (tg.atan2(x, number), np.arctan2(values.astype(float), float(number))),
        (tg.hypot(number, x), np.hypot(float(number), values.astype(float))),
    ]:
        assert found.dtype == tg.float32
        np.testing.assert_allclose(found.numpy(), np.asarray(expected, dtype=float), rtol=1e-6)


@pytest.mark.parametrize("kind", ["float16", "longdouble", "U1", "datetime64[s]"])
@pytest.mark.parametrize(
    "function",
    [
        tg.sin,
        lambda x: tg.add(x, x),
        lambda x: tg.ones(2) + x,
        lambda x: x * tg.ones(2),
        lambda x: tg.reshape(x, (2, 1)),
        lambda x: tg.concat([x, tg.ones(2)]),
        lambda x: tg.asarray(x[0]),
        lambda x: tg.full(2, x[0]),
    ],
    ids=["sin", "add", "+", "r*", "reshape", "concat", "asarray", "full"],
)
def test_a_numpy_array_of_a_dtype_that_tensors_lack_is_refused(function: Any, kind: str) -> None:
    with pytest.raises(DTypeError, match="expected one of the dtypes bool, int8"):
        function(np.zeros(2, dtype=kind))


def test_a_numpy_array_of_another_order_of_bytes_becomes_a_tensor_of_the_usual_one() -> None:
    swapped = np.arange(4, dtype=np.dtype("float32").newbyteorder())
    assert tg.reshape(swapped, (2, 2)).dtype is np.dtype("float32")
    assert tg.reshape(swapped, (2, 2)).tolist() == [[0.0, 1.0], [2.0, 3.0]]


def test_an_array_of_another_order_of_bytes_is_not_shared() -> None:
    swapped = np.arange(4, dtype=np.dtype("float32").newbyteorder())
    with pytest.raises(ValueError, match=r"expected dtype .f4 without a copy, got float32"):
        tg.asarray(swapped, copy=False)
    assert tg.asarray(swapped).dtype is np.dtype("float32")


def test_isdtype_names_what_is_wrong() -> None:
    with pytest.raises(DTypeError, match=r"expected one of the dtypes .* got float16"):
        tg.isdtype(np.float16, "real floating")
    with pytest.raises(DTypeError, match="the name of a kind, got 'whole'"):
        tg.isdtype(tg.int8, "whole")


def test_a_number_beside_a_tensor_takes_its_dtype_on_every_thread():
    # NumPy before 2.1.2 promotes 0-d arrays otherwise on all threads but the main one.
    found = []

    def compute():
        x = tg.tensor(2.0, requires_grad=True)
        (slope,) = tg.autograd.grad(tg.pow(x, 3), x, create_graph=True)
        found.append(tg.autograd.grad(slope, x)[0].dtype)

    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    assert found == [tg.float32]
