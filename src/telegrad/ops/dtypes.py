"""Dtypes: NumPy's scalar types by the standard's names, and how they combine.

As in NumPy itself, ``x.dtype`` is a dtype object that equals its type; dtype objects would not do
here, since the one of float64 equals None.

Where the standard leaves a mixture undefined (an integer with a floating dtype) the floating one
wins, as everywhere in telegrad (``tensors.inputs``).
"""

import builtins
from typing import Any, Final, NamedTuple

import numpy as np

from telegrad.errors import DTypeError
from telegrad.tensors import Tensor
from telegrad.tensors.dtypes import as_dtype
from telegrad.tensors.inputs import default_dtype, joint_dtype, number_dtype, promote

__all__ = [
    "FloatInfo",
    "IntegerInfo",
    "bool",
    "can_cast",
    "complex64",
    "complex128",
    "finfo",
    "float32",
    "float64",
    "iinfo",
    "int8",
    "int16",
    "int32",
    "int64",
    "isdtype",
    "result_type",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]

bool: Final = np.bool_
int8: Final = np.int8
int16: Final = np.int16
int32: Final = np.int32
int64: Final = np.int64
uint8: Final = np.uint8
uint16: Final = np.uint16
uint32: Final = np.uint32
uint64: Final = np.uint64
float32: Final = np.float32
float64: Final = np.float64
complex64: Final = np.complex64
complex128: Final = np.complex128


class FloatInfo(NamedTuple):
    """The limits of a floating dtype; of a complex one, those of its parts."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: np.dtype[Any]


class IntegerInfo(NamedTuple):
    """The limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: np.dtype[Any]


def _dtype_of(type: Any) -> np.dtype[Any]:
    return type.dtype if isinstance(type, Tensor) else as_dtype(type)


def finfo(type: Any, /) -> FloatInfo:
    """Return the limits of a floating dtype, or of that of a tensor.

    Raises:
        DTypeError: If the dtype is neither floating nor complex.

    Examples:
        >>> tg.finfo(tg.float32).bits
        32
        >>> tg.finfo(tg.float64).eps
        2.220446049250313e-16
    """
    dtype = _dtype_of(type)
    if dtype.kind not in "fc":
        raise DTypeError(f"expected a floating or complex dtype in finfo, got {dtype}; see iinfo")
    info = np.finfo(dtype)
    return FloatInfo(
        info.bits,
        float(info.eps),
        float(info.max),
        float(info.min),
        float(info.smallest_normal),
        np.dtype(info.dtype),
    )


def iinfo(type: Any, /) -> IntegerInfo:
    """Return the limits of an integer dtype, or of that of a tensor.

    Raises:
        DTypeError: If the dtype is not of integers.

    Examples:
        >>> tg.iinfo(tg.int8).max
        127
    """
    dtype = _dtype_of(type)
    if dtype.kind not in "iu":
        raise DTypeError(f"expected an integer dtype in iinfo, got {dtype}; see finfo")
    info = np.iinfo(dtype)
    return IntegerInfo(info.bits, int(info.max), int(info.min), dtype)


def isdtype(dtype: Any, kind: Any) -> builtins.bool:
    """Say whether a dtype is of a kind: a dtype, a word such as 'real floating', a tuple of those.

    Raises:
        DTypeError: If the kind is not known.

    Examples:
        >>> tg.isdtype(tg.float32, "real floating")
        True
        >>> tg.isdtype(tg.int64, (tg.float32, tg.float64))
        False
    """
    own = as_dtype(dtype)
    try:
        return builtins.bool(np.isdtype(own, kind))
    except (TypeError, ValueError) as error:
        raise DTypeError(f"expected a dtype or the name of a kind, got {kind!r}") from error


def can_cast(from_: Any, to: Any, /) -> builtins.bool:
    """Say whether promotion can turn one dtype into the other.

    Examples:
        >>> tg.can_cast(tg.float32, tg.float64)
        True
        >>> tg.can_cast(tg.float64, tg.float32)
        False
    """
    target = as_dtype(to)
    source = _dtype_of(from_)
    return builtins.bool(promote(source, target) == target)


def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """Return the dtype that values of these dtypes, tensors and Python numbers have when combined.

    Raises:
        DTypeError: If nothing is given.

    Examples:
        >>> tg.result_type(tg.float32, tg.float64)
        dtype('float64')
        >>> tg.result_type(tg.tensor([1.0]), 2)
        dtype('float32')
    """
    if not arrays_and_dtypes:
        raise DTypeError("expected at least one tensor or dtype in result_type, got none")
    numbers = [x for x in arrays_and_dtypes if isinstance(x, (int, float, complex))]
    dtypes = [_dtype_of(x) for x in arrays_and_dtypes if not any(x is n for n in numbers)]
    if not dtypes:
        dtypes, numbers = [default_dtype(n) for n in numbers], []
    joint = joint_dtype(dtypes)
    for number in numbers:
        joint = number_dtype(number, joint)
    return joint
