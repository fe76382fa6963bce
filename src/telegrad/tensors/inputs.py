"""The inputs of a primitive, made of what a user passed: Tensors of one backend, numbers as 0-d.

Promotion follows the array API standard; where that leaves a mixture undefined (an integer tensor
with a floating one, or with a Python float) the floating dtype wins and float32 is the default, as
in PyTorch.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from telegrad.arrays import backend_of
from telegrad.errors import DeviceError, DTypeError
from telegrad.tensors.describe import kind_of, way_in
from telegrad.tensors.dtypes import as_dtype
from telegrad.tensors.late_bound import late_bound
from telegrad.tensors.numpy.masked import refuse_masked
from telegrad.tensors.tensor import Tensor, wrap

NUMBERS = (bool, int, float, complex)
_RANK = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
_COMPARISONS = {"equal", "greater", "greater_equal", "less", "less_equal", "not_equal"}


def _rank(number: Any) -> int:
    """Return the place of a number's kind in NUMBERS; an ``IntEnum`` counts as an int."""
    for rank, kind in enumerate(NUMBERS):
        if isinstance(number, kind):
            return rank
    raise DTypeError(f"expected a number, got {type(number).__name__}")


def default_dtype(number: Any) -> np.dtype[Any]:
    """Return the dtype of a Python number on its own."""
    return np.dtype(("bool", "int64", "float32", "complex64")[_rank(number)])


def number_dtype(number: Any, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that a Python number takes in a call with values of `dtype`."""
    rank = _rank(number)
    own = _RANK[dtype.kind]
    if rank <= own:
        return dtype
    if rank == 3:
        return np.dtype("complex128" if dtype == np.float64 else "complex64")
    return default_dtype(number)


def as_inputs(name: str, inputs: Sequence[Any], *, is_floating: bool = False) -> list[Tensor]:
    """Return tensors for all inputs of the function `name`; numbers get a dtype that suits them.

    `is_floating`: whether the function makes integers floating.
    """
    tensors = [x for x in inputs if isinstance(x, Tensor)]
    if len(tensors) == len(inputs):
        return _beside_others(tensors)
    dtype = joint_dtype([x.dtype for x in tensors]) if tensors else None
    xp = common_backend(name, tensors) if tensors else None
    return [_as_input(name, i, x, dtype, xp, is_floating) for i, x in enumerate(inputs)]


def _beside_others(tensors: list[Tensor]) -> list[Tensor]:
    """Move NumPy's constants to the backend of the others: rules make zeros without knowing it."""
    backends = [backend_of(x.array) for x in tensors]
    other = next((xp for xp in backends if not xp.is_numpy), None)
    if other is None:
        return tensors
    return [
        wrap(other.asarray(x.array)) if xp.is_numpy and x.node is None and not x.tangents else x
        for x, xp in zip(tensors, backends)
    ]


def takes(x: Any) -> bool:
    """Say whether operators accept `x` beside a Tensor."""
    return isinstance(x, (Tensor, *NUMBERS, np.ndarray, np.generic))


late_bound.takes = takes


def _as_input(
    name: str, index: int, x: Any, dtype: np.dtype[Any] | None, xp: Any, is_floating: bool
) -> Tensor:
    if isinstance(x, Tensor):
        return x
    if isinstance(x, NUMBERS) and not isinstance(x, np.generic):
        chosen = default_dtype(x) if dtype is None else number_dtype(x, dtype)
        try:
            array = np.asarray(x, dtype=chosen)
        except OverflowError:
            # A number that the tensor's integers can't hold has no sum with them, but they can be
            # compared with it and divided by it.
            if not is_floating and name not in _COMPARISONS:
                raise
            chosen = default_dtype(0.0 if is_floating else x)
            array = np.asarray(x, dtype=chosen)
        return wrap(array if xp is None or xp.is_numpy else xp.asarray(x, dtype=chosen))
    if isinstance(x, (np.ndarray, np.generic)):
        refuse_masked(x)
        return wrap(np.array(x, dtype=as_dtype(x.dtype)))
    raise DTypeError(
        f"expected a Tensor or a number as argument {index} of {name}, got {kind_of(x)}; convert "
        f"it with {way_in(x)}"
    )


def joint_dtype(dtypes: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
    """Return the dtype of a result computed from values of all these dtypes; at least one."""
    first, *rest = dtypes
    for other in rest:
        first = promote(first, other)
    return first


def fits_kind(dtype: np.dtype[Any], into: np.dtype[Any]) -> bool:
    """Say whether `into` holds values of `dtype` without losing a fraction or imaginary part."""
    return _RANK[dtype.kind] <= _RANK[into.kind]


def promote(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of a result computed from values of `a` and `b`.

    A floating dtype wins over an integer one.
    """
    if a == b:
        return a
    rank_a, rank_b = _RANK[a.kind], _RANK[b.kind]
    if max(rank_a, rank_b) >= 2 and min(rank_a, rank_b) <= 1:
        return a if rank_a > rank_b else b
    return np.promote_types(a, b)


def common_backend(name: str, tensors: Sequence[Tensor]) -> Any:
    """Return the backend that serves all of the tensors; raise if there are several."""
    xp = backend_of(tensors[0].array)
    for other in tensors[1:]:
        if backend_of(other.array) is not xp:
            raise DeviceError(
                f"expected all tensors of {name} on one backend, got {xp.name} and "
                f"{backend_of(other.array).name}; move one of them with .to(device), or make "
                "it again with telegrad.asarray, of an array of the other's library"
            )
    return xp
