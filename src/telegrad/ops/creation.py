"""Making tensors from data: Python numbers, NumPy arrays, arrays of other libraries.

Data is copied unless the caller asks to share it; shared memory is marked (``tensors.shared``).
"""

from typing import Any, Never

import numpy as np

from telegrad.arrays import backend_of
from telegrad.arrays.cupy import is_cupy
from telegrad.errors import DTypeError
from telegrad.ops.concatenation import stack
from telegrad.ops.filled import made
from telegrad.tensors import Tensor, wrap
from telegrad.tensors.dtypes import as_dtype, refuse_complex
from telegrad.tensors.numpy.masked import refuse_masked
from telegrad.tensors.shared import share
from telegrad.tensors.torch_hints import unexpected

_DEFAULTS: dict[str, np.dtype[Any]] = {
    "f": np.dtype("float32"),
    "c": np.dtype("complex64"),
    "i": np.dtype("int64"),
}


def tensor(
    data: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **unknown: Never,
) -> Tensor:
    """Make a tensor with a copy of the data.

    Python numbers become float32, complex64, int64 or bool. The copy is a leaf: it has no history.

    Arguments:
        data: Numbers, nested sequences of them, an array of NumPy or another library, or a Tensor.
        dtype: The dtype of the tensor; that of the data by default.
        device: Where it is to be, such as "cuda"; by default where the data is.
        requires_grad: Whether gradients are wanted with respect to this tensor.

    Raises:
        DTypeError: If the data holds something other than numbers, or is not regular.

    Examples:
        >>> tg.tensor([1, 2, 3])
        tensor([1, 2, 3])
        >>> tg.tensor([[1.0, 2.0]], requires_grad=True)
        tensor([[1., 2.]], requires_grad=True)
    """
    if unknown:
        raise unexpected("tensor", unknown)
    result = asarray(data, dtype=dtype, device=device, copy=True)
    if result.node is not None or result.tangents:
        result = result.detach()
    return result.requires_grad_() if requires_grad else result


def asarray(
    obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None
) -> Tensor:
    """Make a tensor of the data: copied unless ``copy=False`` is possible and asked for.

    A Tensor is itself, with its history, unless its dtype changes or a copy is asked for. A list of
    Tensors is stacked, with their histories.

    Arguments:
        obj: Numbers, nested sequences of them, an array of NumPy or another library, or a Tensor.
        dtype: The dtype of the tensor; that of the data by default.
        device: Where it is to be, such as "cuda"; by default where the data is.
        copy: True always copies, False never, or raises; by default only a Tensor is not copied.

    Raises:
        ValueError: If ``copy=False`` is asked for and a copy cannot be avoided.
        DTypeError: If the data holds something other than numbers, or is not regular.

    Examples:
        >>> import numpy as np
        >>> tg.asarray(np.arange(3))
        tensor([0, 1, 2])
    """
    dtype = None if dtype is None else as_dtype(dtype)
    if isinstance(obj, Tensor):
        result = obj if device is None else obj.to_device(device)
        if dtype is not None and dtype != obj.dtype:
            _refuse_cast(obj.dtype, dtype, copy)
            return result.to(dtype)
        if result is not obj and copy is False:
            raise ValueError(f"expected the device {obj.device!s} without a copy, got {device}")
        return result.clone() if copy and result is obj else result
    if isinstance(obj, np.ndarray):
        refuse_masked(obj)
        known = as_dtype(obj.dtype) if dtype is None else dtype
        if copy is False:
            _refuse_cast(obj.dtype, known, copy)
            if device is not None and str(device) != "cpu":
                raise ValueError(f"expected the device cpu without a copy, got {device}")
            return wrap(share(obj))
        refuse_complex(obj.dtype, known)
        # A copy by astype has NumPy's own dtype object, not the one that came out of a pickle.
        return made(obj.astype(known, subok=False), device)
    if hasattr(obj, "__array_namespace__") or is_cupy(obj):
        xp = backend_of(obj)
        if copy is False:
            raise ValueError(
                f"expected a NumPy array to share without a copy, got one of {xp.name}, in which "
                "a later change could not be found; leave copy=False out, or use from_dlpack"
            )
        own = xp.dtype_of(obj)
        if dtype is None:
            as_dtype(own)
        else:
            refuse_complex(own, dtype)
        return made(xp.asarray(obj, dtype=dtype, copy=True), device)
    if copy is False:
        raise ValueError(
            f"expected an array to share without a copy, got {type(obj).__name__}; its elements "
            "have to be copied"
        )
    if _has_history(obj):
        result = stack([asarray(part) for part in obj])
        return result.to(dtype=dtype, device=device)
    return made(_from_python(obj, dtype), device)


def _refuse_cast(own: np.dtype[Any], dtype: np.dtype[Any] | None, copy: bool | None) -> None:
    if copy is False and dtype is not None and dtype != own:
        raise ValueError(f"expected dtype {own} without a copy, got {dtype}")


def _has_history(obj: Any) -> bool:
    if isinstance(obj, Tensor):
        return obj.requires_grad or obj.is_dual
    return isinstance(obj, (list, tuple)) and any(_has_history(part) for part in obj)


def _from_python(obj: Any, dtype: np.dtype[Any] | None) -> Any:
    try:
        array = np.array(_numbers(obj, dtype), dtype=dtype)
    except ValueError as error:
        raise DTypeError(f"expected numbers in a regular nesting, got {obj!r}: {error}") from error
    if array.dtype == object:
        raise DTypeError(f"expected numbers in a regular nesting, got {obj!r}")
    if dtype is None and isinstance(_first(obj), (bool, int, float, complex)):
        return array.astype(_DEFAULTS.get(array.dtype.kind, array.dtype), copy=False)
    return array.astype(as_dtype(array.dtype), copy=False)


def _numbers(obj: Any, dtype: np.dtype[Any] | None) -> Any:
    if isinstance(obj, (list, tuple)):
        return [_numbers(part, dtype) for part in obj]
    refuse_masked(obj)
    if isinstance(obj, Tensor):
        obj = obj.array
    if hasattr(obj, "__array__") and not isinstance(obj, np.generic):
        # Not by np.array, since PyTorch's tensors don't take its argument ``copy``.
        obj = np.asarray(obj)
    if dtype is not None and isinstance(obj, (np.ndarray, np.generic)):
        refuse_complex(obj.dtype, dtype)
    return obj


def _first(obj: Any) -> Any:
    """Return the first element of a nesting; unlike Python's, NumPy's numbers have a dtype."""
    while isinstance(obj, (list, tuple)) and obj:
        obj = obj[0]
    # NumPy's float64 is a Python float, too; an empty list has the dtype of a Python number.
    return 0.0 if isinstance(obj, (list, tuple)) else None if isinstance(obj, np.generic) else obj


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """Make a tensor of an array of another library, in the same memory unless a copy is asked for.

    Arguments:
        x: An object with ``__dlpack__``.
        device: "cpu" or None, which is the same.
        copy: True copies, False or None shares the memory.

    Examples:
        >>> import numpy as np
        >>> tg.from_dlpack(np.array([1.0, 2.0]))
        tensor([1., 2.], dtype=float64)
    """
    if isinstance(x, Tensor):
        return x.clone() if copy else x
    array = np.from_dlpack(x, device=device, copy=copy)
    as_dtype(array.dtype)
    return wrap(array if copy else share(array))
