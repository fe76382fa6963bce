"""The methods of a Tensor: ``x.sum()`` is ``telegrad.sum(x)``.

Only what people type every day is a method; ``torch_names`` says which function to call instead of
any other. Methods of PyTorch's that the array API standard lacks (``permute``, ``expand``) have
PyTorch's arguments.
"""
# The namespace is bound by a later layer, so its type is not known here.
# mypy: disable-error-code="no-any-return, empty-body"

import math
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from telegrad.errors import ShapeError
from telegrad.tensors.dtypes import fitting
from telegrad.tensors.late_bound import late_bound
from telegrad.tensors.torch_hints import advises, unexpected, without_advice
from telegrad.tensors.torch_names import METHODS

if TYPE_CHECKING:
    from telegrad.tensors.tensor import Tensor


class Functions:
    """A part of Tensor: the public functions that are methods as they are, without a body here.

    ``telegrad.namespace`` puts each function in the place of its declaration.
    """

    __slots__ = ()

    def abs(self) -> "Tensor": ...
    def all(self, axis: Any = None, keepdims: bool = False, **unknown: Never) -> "Tensor": ...
    def any(self, axis: Any = None, keepdims: bool = False, **unknown: Never) -> "Tensor": ...
    def argmax(self, axis: Any = None, keepdims: bool = False, **unknown: Never) -> "Tensor": ...
    def argmin(self, axis: Any = None, keepdims: bool = False, **unknown: Never) -> "Tensor": ...
    def astype(self, dtype: Any, /, *, copy: bool = True, device: Any = None) -> "Tensor": ...
    def ceil(self) -> "Tensor": ...
    def clip(self, min: Any = None, max: Any = None) -> "Tensor": ...
    def clone(self) -> "Tensor": ...
    def conj(self) -> "Tensor": ...
    def cos(self) -> "Tensor": ...
    def exp(self) -> "Tensor": ...
    def floor(self) -> "Tensor": ...
    def log(self) -> "Tensor": ...
    def log_softmax(self, axis: Any = -1, **unknown: Never) -> "Tensor": ...
    def logsumexp(self, axis: Any = None, keepdims: bool = False, **unknown: Never) -> "Tensor": ...
    def matmul(self, other: Any, /) -> "Tensor": ...
    def max(self, axis: Any = None, keepdims: bool = False, **unknown: Never) -> "Tensor": ...
    def mean(self, axis: Any = None, keepdims: bool = False, **unknown: Never) -> "Tensor": ...
    def min(self, axis: Any = None, keepdims: bool = False, **unknown: Never) -> "Tensor": ...
    def pow(self, exponent: Any, /) -> "Tensor": ...
    def prod(
        self, axis: Any = None, keepdims: bool = False, *, dtype: Any = None, **unknown: Never
    ) -> "Tensor": ...
    def relu(self) -> "Tensor": ...
    def round(self) -> "Tensor": ...
    def sigmoid(self) -> "Tensor": ...
    def sign(self) -> "Tensor": ...
    def sin(self) -> "Tensor": ...
    def softmax(self, axis: Any = -1, **unknown: Never) -> "Tensor": ...
    def sqrt(self) -> "Tensor": ...
    def square(self) -> "Tensor": ...
    def squeeze(self, axis: Any = None, **unknown: Never) -> "Tensor": ...
    def std(
        self, axis: Any = None, *, correction: Any = 0.0, keepdims: bool = False, **unknown: Never
    ) -> "Tensor": ...
    def sum(
        self, axis: Any = None, keepdims: bool = False, *, dtype: Any = None, **unknown: Never
    ) -> "Tensor": ...
    def tanh(self) -> "Tensor": ...
    def var(
        self, axis: Any = None, *, correction: Any = 0.0, keepdims: bool = False, **unknown: Never
    ) -> "Tensor": ...


@advises("Tensor", METHODS)
class Methods(Functions):
    """A part of Tensor: methods that spell public functions in another way."""

    __slots__ = ()

    def __dir__(self) -> list[str]:
        return without_advice(self, super().__dir__())

    # Many values to fewer

    def norm(
        self, ord: Any = 2, axis: Any = None, *, keepdims: bool = False, **unknown: Never
    ) -> "Tensor":
        """Return the length as a vector, of this order, over some axes or over all of them."""
        if unknown:
            raise unexpected("norm", unknown)
        return late_bound.namespace.linalg.vector_norm(self, axis=axis, ord=ord, keepdims=keepdims)

    def cumsum(self, axis: Any = None, **unknown: Never) -> "Tensor":
        """Return the running sum along an axis."""
        if unknown:
            raise unexpected("cumsum", unknown)
        return late_bound.namespace.cumulative_sum(self, axis=axis)

    # Shape and order

    def dim(self: Any) -> int:
        """Return the same as ``ndim``."""
        return self.ndim

    def numel(self: Any) -> int:
        """Return the same as ``size``, the number of elements."""
        return self.size

    def reshape(self, *shape: Any) -> "Tensor":
        """Return the same elements in another shape, given as a tuple or as several numbers."""
        return late_bound.namespace.reshape(self, _shape(shape))

    view = reshape
    """The same as ``reshape``: values do not alias, so there is no memory to share."""

    def flatten(self: Any, start_dim: int = 0, end_dim: int = -1) -> "Tensor":
        """Return the axes from ``start_dim`` to ``end_dim``, both included, as one."""
        ndim = self.ndim
        if not ndim:
            return late_bound.namespace.reshape(self, (1,))
        axes = range(-ndim, ndim)
        start, end = start_dim % ndim, end_dim % ndim
        if start_dim not in axes or end_dim not in axes or start > end:
            raise ShapeError(
                f"expected two axes of shape {self.shape} in flatten, the earlier one first, got "
                f"{start_dim} and {end_dim}"
            )
        joined = math.prod(self.shape[start : end + 1])
        return late_bound.namespace.reshape(
            self, (*self.shape[:start], joined, *self.shape[end + 1 :])
        )

    def unsqueeze(self, dim: int) -> "Tensor":
        """Add an axis of length 1."""
        return late_bound.namespace.expand_dims(self, axis=dim)

    def permute(self, *axes: Any) -> "Tensor":
        """Return the axes in another order, given as a tuple or as several numbers."""
        return late_bound.namespace.permute_dims(self, _shape(axes))

    def transpose(self: Any, dim0: int, dim1: int) -> "Tensor":
        """Exchange two axes."""
        for axis in (dim0, dim1):
            if not -self.ndim <= axis < self.ndim:
                raise ShapeError(
                    f"expected two axes of shape {self.shape} in transpose, got {dim0} and {dim1}"
                )
        order = list(range(self.ndim))
        order[dim0], order[dim1] = order[dim1], order[dim0]
        return late_bound.namespace.permute_dims(self, tuple(order))

    def expand(self: Any, *shape: Any) -> "Tensor":
        """Stretch to a larger shape; -1 leaves a length as it is."""
        wanted = _shape(shape)
        own = (-1,) * (len(wanted) - self.ndim) + self.shape
        lengths = tuple(n if w == -1 else w for w, n in zip(wanted, own))
        return late_bound.namespace.broadcast_to(self, lengths)

    def t(self: Any) -> "Tensor":
        """Return the transposed matrix; a vector or a 0-d tensor is itself."""
        return self if self.ndim < 2 else self.T

    @property
    def T(self: Any) -> "Tensor":
        """The transposed matrix; only for two axes, see ``mT``."""
        if self.ndim != 2:
            raise ShapeError(
                f"expected a matrix for .T, got shape {self.shape}; use .mT for stacks of matrices "
                "or permute_dims for other orders"
            )
        return late_bound.namespace.matrix_transpose(self)

    @property
    def mT(self) -> "Tensor":
        """The last two axes exchanged."""
        return late_bound.namespace.matrix_transpose(self)

    @property
    def at(self) -> Any:
        """``x.at[index].set(values)`` and its kin: a copy of x with these places changed."""
        return late_bound.namespace.at(self)

    # Element by element

    def clamp(self, min: Any = None, max: Any = None) -> "Tensor":
        """Return the same as ``clip``."""
        return late_bound.namespace.clip(self, min, max)

    def masked_fill(self: Any, mask: Any, value: Any) -> "Tensor":
        """Return `value` where the mask is true, the elements elsewhere."""
        if self.dtype.kind in "fc" and type(value) in (int, float):
            fitting(value, self.dtype)
        return late_bound.namespace.where(mask, value, self)

    @property
    def real(self) -> "Tensor":
        """The real part."""
        return late_bound.namespace.real(self)

    @property
    def imag(self) -> "Tensor":
        """The imaginary part."""
        return late_bound.namespace.imag(self)

    # Products

    def dot(self: Any, other: Any, /) -> "Tensor":
        """Return the sum of the products of two vectors, unconjugated."""
        if self.ndim != 1 or other.ndim != 1:
            raise ShapeError(
                f"expected two vectors in dot, got shapes {self.shape} and {other.shape}; use @ "
                "for matrices"
            )
        return late_bound.namespace.matmul(self, other)

    # Copies, dtypes and devices

    def copy(self) -> "Tensor":
        """Return the same as ``clone``."""
        return late_bound.namespace.clone(self)

    def double(self) -> "Tensor":
        """Convert to float64 (complex128 for complex values)."""
        return _in_precision(self, "float64", "complex128")

    def float(self) -> "Tensor":
        """Convert to float32 (complex64 for complex values)."""
        return _in_precision(self, "float32", "complex64")

    def long(self) -> "Tensor":
        """Convert to int64; fractions are cut off."""
        return late_bound.namespace.astype(self, np.int64, copy=False)

    def cuda(self, device: Any = "cuda") -> "Tensor":
        """Return this tensor on a CUDA device, by its name or number: the current one."""
        where = f"cuda:{device}" if isinstance(device, int) else device
        return late_bound.namespace.to_device(self, where)

    def cpu(self) -> "Tensor":
        """Return this tensor on the CPU; itself where it is there already."""
        return late_bound.namespace.to_device(self, "cpu")

    def contiguous(self: Any) -> "Tensor":
        """Return itself: tensors have no strides."""
        return self

    def to(self: Any, *where: Any, dtype: Any = None, device: Any = None) -> "Tensor":
        """Return this tensor with another dtype or on another device, or itself."""
        for each in where:
            if _is_dtype(each):
                dtype = each
            else:
                device = each
        result = self
        if dtype is not None and np.dtype(dtype) != self.dtype:
            result = late_bound.namespace.astype(result, dtype)
        if device is not None:
            result = late_bound.namespace.to_device(result, device)
        return result

    def to_device(self, device: Any, /, *, stream: Any = None) -> "Tensor":
        """Return this tensor on another device."""
        return late_bound.namespace.to_device(self, device)


def _in_precision(x: Any, real: str, complex_: str) -> "Tensor":
    dtype = complex_ if x.dtype.kind == "c" else real
    return late_bound.namespace.astype(x, np.dtype(dtype), copy=False)


def _shape(shape: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape


def _is_dtype(value: Any) -> bool:
    if isinstance(value, str) and value == "cpu":
        return False
    try:
        np.dtype(value)
    except TypeError:
        return False
    return True
