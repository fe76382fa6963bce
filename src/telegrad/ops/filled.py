"""Tensors that are made by a rule rather than from data: constants, ranges, the identity."""

from collections.abc import Sequence
from typing import Any, Never

import numpy as np

from telegrad.arrays import backend_of
from telegrad.arrays.devices import placed
from telegrad.errors import ShapeError
from telegrad.ops.arguments import ArrayLike, as_tensor, shape_of
from telegrad.ops.manipulation import astype, broadcast_to
from telegrad.tensors import Tensor, wrap
from telegrad.tensors.dtypes import as_dtype, fitting, refuse_complex
from telegrad.tensors.inputs import default_dtype
from telegrad.tensors.recording.modes import MODE
from telegrad.tensors.torch_hints import unexpected

_FLOAT32 = np.dtype("float32")


def made(array: Any, device: Any = None) -> Tensor:
    """Return a constant around an array that nothing else holds, moved to `device` if given."""
    result = wrap(array if device is None else placed(array, device))
    if MODE.get().inference:
        result.ensure_meta().inference = True
    return result


def _dtype(dtype: Any, default: np.dtype[Any] = _FLOAT32) -> np.dtype[Any]:
    return default if dtype is None else as_dtype(dtype)


def empty(
    shape: int | Sequence[int],
    *more: int,
    dtype: Any = None,
    device: Any = None,
    **unknown: Never,
) -> Tensor:
    """Make a tensor whose elements are yet to be set: zeros.

    The arguments are those of ``zeros``.

    Examples:
        >>> tg.empty(2)
        tensor([0., 0.])
    """
    if unknown:
        raise unexpected("empty", unknown)
    return zeros(shape, *more, dtype=dtype, device=device)


def zeros(
    shape: int | Sequence[int],
    *more: int,
    dtype: Any = None,
    device: Any = None,
    **unknown: Never,
) -> Tensor:
    """Make a tensor of zeros.

    Arguments:
        shape: The lengths of the axes: a tuple or a number.
        *more: Further lengths, where the shape is given as several numbers.
        dtype: The dtype of the result; float32 by default.
        device: Where to make it, such as "cuda"; the CPU by default.

    Examples:
        >>> tg.zeros(2, 3)
        tensor([[0., 0., 0.],
                [0., 0., 0.]])
        >>> tg.zeros((2,), dtype=tg.int64)
        tensor([0, 0])
    """
    if unknown:
        raise unexpected("zeros", unknown)
    return made(np.zeros(shape_of(shape, *more), dtype=_dtype(dtype)), device)


def ones(
    shape: int | Sequence[int],
    *more: int,
    dtype: Any = None,
    device: Any = None,
    **unknown: Never,
) -> Tensor:
    """Make a tensor of ones.

    The arguments are those of ``zeros``.

    Examples:
        >>> tg.ones(2, 3)
        tensor([[1., 1., 1.],
                [1., 1., 1.]])
    """
    if unknown:
        raise unexpected("ones", unknown)
    return made(np.ones(shape_of(shape, *more), dtype=_dtype(dtype)), device)


def full(
    shape: int | Sequence[int],
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    **unknown: Never,
) -> Tensor:
    """Make a tensor with one value everywhere.

    Arguments:
        shape: The lengths of the axes: a tuple or a number.
        fill_value: A number, or a 0-d tensor, whose history the result then has.
        dtype: The dtype of the result; that of the value by default.
        device: Where to make it, such as "cuda"; the CPU by default.

    Raises:
        ShapeError: If the value is a tensor with axes.

    Examples:
        >>> tg.full((2, 2), 7.0)
        tensor([[7., 7.],
                [7., 7.]])
    """
    if unknown:
        raise unexpected("full", unknown)
    if isinstance(fill_value, Tensor):
        return _spread(fill_value, shape_of(shape), _dtype(dtype, fill_value.dtype), device)
    chosen = as_dtype(_natural(fill_value) if dtype is None else dtype)
    return made(np.full(shape_of(shape), fitting(fill_value, chosen), dtype=chosen), device)


def _spread(value: Tensor, shape: tuple[int, ...], dtype: np.dtype[Any], device: Any) -> Tensor:
    """Return a 0-d tensor over a whole shape, with its history."""
    if value.ndim:
        raise ShapeError(f"expected a number or a 0-d tensor to fill with, got shape {value.shape}")
    return broadcast_to(astype(value, dtype, copy=False, device=device), shape)


def _number(value: Any) -> Any:
    """Return a number; a 0-d tensor's, too, but raise where that would lose its history."""
    return value.numpy().item() if isinstance(value, Tensor) else value


def _natural(number: Any) -> np.dtype[Any]:
    """Return the dtype of a number: NumPy's keep their own, Python's have the defaults."""
    return number.dtype if isinstance(number, np.generic) else default_dtype(number)


def empty_like(x: ArrayLike, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Make a tensor of the shape and dtype of x whose elements are yet to be set: zeros.

    The arguments are those of ``zeros_like``.

    Examples:
        >>> tg.empty_like(tg.tensor([1, 2]))
        tensor([0, 0])
    """
    return zeros_like(x, dtype=dtype, device=device)


def zeros_like(x: ArrayLike, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Make zeros of the shape and dtype of x, beside it.

    Arguments:
        x: The tensor to be like.
        dtype: The dtype of the result; that of x by default.
        device: Where to make it, such as "cuda"; beside x by default.

    Examples:
        >>> tg.zeros_like(tg.tensor([1, 2]))
        tensor([0, 0])
    """
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: ArrayLike, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Make ones of the shape and dtype of x, beside it.

    The arguments are those of ``zeros_like``.

    Examples:
        >>> tg.ones_like(tg.tensor([1.0, 2.0]))
        tensor([1., 1.])
    """
    return full_like(x, 1, dtype=dtype, device=device)


def full_like(x: ArrayLike, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Make a tensor with one value everywhere, of the shape and dtype of x, beside it.

    The other arguments are those of ``zeros_like``.

    Arguments:
        fill_value: A number, or a 0-d tensor, whose history the result then has.

    Raises:
        ShapeError: If the value is a tensor with axes.

    Examples:
        >>> tg.full_like(tg.tensor([1.0, 2.0]), 7)
        tensor([7., 7.])
    """
    x = as_tensor(x, "full_like")
    if isinstance(fill_value, Tensor):
        return _spread(fill_value, x.shape, _dtype(dtype, x.dtype), device)
    chosen = _dtype(dtype, x.dtype)
    full = backend_of(x.array).full
    return made(full(x.shape, fitting(fill_value, chosen), dtype=chosen), device)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """Make a matrix with ones on diagonal `k` and zeros elsewhere.

    Arguments:
        n_rows: How many rows.
        n_cols: How many columns; as many as rows by default.
        k: Which diagonal: 0 is the main one, a positive number counts above it.
        dtype: The dtype of the result; float32 by default.
        device: Where to make it, such as "cuda"; the CPU by default.

    Examples:
        >>> tg.eye(2)
        tensor([[1., 0.],
                [0., 1.]])
        >>> tg.eye(2, 3, k=1)
        tensor([[0., 1., 0.],
                [0., 0., 1.]])
    """
    return made(np.eye(n_rows, n_cols, k=k, dtype=_dtype(dtype)), device)


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """Return numbers from `start` up to, without, `stop`.

    Arguments:
        start: The first number; with one argument, the end, and the numbers start at 0.
        stop: The end, which is left out.
        step: From each number to the next.
        dtype: The dtype of the result; int64 for whole numbers and float32 for others by default.
        device: Where to make it, such as "cuda"; the CPU by default.

    Examples:
        >>> tg.arange(4)
        tensor([0, 1, 2, 3])
        >>> tg.arange(0.0, 1.0, 0.25)
        tensor([0.  , 0.25, 0.5 , 0.75])
    """
    if stop is None:
        start, stop = 0, start
    start, stop, step = _number(start), _number(stop), _number(step)
    natural = np.result_type(*(_natural(n) for n in (start, stop, step)))
    if natural.kind == "f":
        natural = _FLOAT32
    return made(np.arange(start, stop, step, dtype=_dtype(dtype, natural)), device)


def linspace(
    start: complex,
    stop: complex,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> Tensor:
    """Return `num` numbers at equal distances from `start` to `stop`.

    Arguments:
        start: The first number.
        stop: The last number.
        num: How many.
        dtype: The dtype of the result; float32, or complex64, by default.
        device: Where to make it, such as "cuda"; the CPU by default.
        endpoint: Whether `stop` itself is among them.

    Examples:
        >>> tg.linspace(0, 1, 5)
        tensor([0.  , 0.25, 0.5 , 0.75, 1.  ])
        >>> tg.linspace(0, 1, 4, endpoint=False)
        tensor([0.  , 0.25, 0.5 , 0.75])
    """
    start, stop = _number(start), _number(stop)
    is_complex = isinstance(start, complex) or isinstance(stop, complex)
    natural = np.dtype("complex64") if is_complex else _FLOAT32
    chosen = _dtype(dtype, natural)
    refuse_complex(natural, chosen)
    return made(np.linspace(start, stop, num, dtype=chosen, endpoint=endpoint), device)
