"""Making tensors from data."""

from typing import Any

import numpy as np

from telegrad.errors import DTypeError
from telegrad.tensors import Tensor, wrap
from telegrad.tensors.modes import MODE
from telegrad.tensors.shared import share

__all__ = ["asarray", "full", "full_like", "ones", "ones_like", "tensor", "zeros", "zeros_like"]

_DEFAULTS = {"f": np.dtype("float32"), "c": np.dtype("complex64"), "i": np.dtype("int64")}


def tensor(data: Any, *, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor with a copy of the data; Python numbers become float32, complex64, int64 or bool."""
    made = asarray(data, dtype=dtype, copy=True)
    if made.node is not None:
        made = made.detach()
    return made.requires_grad_() if requires_grad else made


def asarray(
    obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None
) -> Tensor:
    """A tensor of the data: copied unless ``copy=False`` is possible and asked for."""
    if isinstance(obj, Tensor):
        if dtype is not None and np.dtype(dtype) != obj.dtype:
            if copy is False:
                raise ValueError(f"expected dtype {obj.dtype} without a copy, got {dtype}")
            return obj.to(dtype)
        return obj.clone() if copy else obj
    if isinstance(obj, np.ndarray):
        if copy is False:
            if dtype is not None and obj.dtype != dtype:
                raise ValueError(f"expected dtype {obj.dtype} without a copy, got {dtype}")
            return wrap(share(obj))
        return wrap(np.array(obj, dtype=dtype))
    if copy is False:
        raise ValueError("expected an array to share without a copy, got Python data")
    return _made(wrap(np.asarray(_numbers(obj), dtype=dtype) if dtype else _defaulted(obj)))


def _numbers(obj: Any) -> Any:
    return [_numbers(part) for part in obj] if isinstance(obj, (list, tuple)) else _bare(obj)


def _bare(obj: Any) -> Any:
    return obj.array if isinstance(obj, Tensor) else obj


def _defaulted(obj: Any) -> Any:
    array = np.asarray(_numbers(obj))
    if array.dtype == object:
        raise DTypeError(f"expected numbers in a regular nesting, got {obj!r}")
    if isinstance(obj, np.generic):
        return array
    return array.astype(_DEFAULTS.get(array.dtype.kind, array.dtype), copy=False)


def _made(made: Tensor) -> Tensor:
    if MODE.get().inference:
        made.states().inference = True
    return made


def zeros(shape: int | tuple[int, ...], *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of zeros."""
    return wrap(np.zeros(shape, dtype=dtype or np.float32))


def ones(shape: int | tuple[int, ...], *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of ones."""
    return wrap(np.ones(shape, dtype=dtype or np.float32))


def full(
    shape: int | tuple[int, ...], fill_value: Any, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """A tensor with one value everywhere."""
    if dtype is None:
        dtype = _defaulted(fill_value).dtype
    return wrap(np.full(shape, fill_value, dtype=dtype))


def zeros_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros of the shape and dtype of x."""
    return wrap(np.zeros(x.shape, dtype=dtype or x.dtype))


def ones_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones of the shape and dtype of x."""
    return wrap(np.ones(x.shape, dtype=dtype or x.dtype))


def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """One value everywhere, of the shape and dtype of x."""
    return wrap(np.full(x.shape, fill_value, dtype=dtype or x.dtype))
