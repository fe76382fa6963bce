"""The methods of a Tensor that call public functions: ``x.sum()`` is ``sum(x)``.

Only what people type every day is a method; ``torch_names`` says which function to call instead of
any other. Axes and options are those of the functions; methods of PyTorch's that the array API
standard lacks (``permute``, ``expand``) have PyTorch's arguments.
"""
# The namespace is bound by a later layer, so its type is not known here.
# mypy: disable-error-code="no-any-return"

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


@advises("Tensor", METHODS)
class Methods:
    """A part of Tensor: methods that call public functions."""

    __slots__ = ()

    def __dir__(self) -> list[str]:
        return without_advice(self, super().__dir__())

    # Many values to fewer

    def sum(
        self, axis: Any = None, keepdims: bool = False, *, dtype: Any = None, **unknown: Never
    ) -> "Tensor":
        """Return the sum over some axes, or over all of them."""
        if unknown:
            raise unexpected("sum", unknown)
        return late_bound.namespace.sum(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def prod(
        self, axis: Any = None, keepdims: bool = False, *, dtype: Any = None, **unknown: Never
    ) -> "Tensor":
        """Return the product over some axes, or over all of them."""
        if unknown:
            raise unexpected("prod", unknown)
        return late_bound.namespace.prod(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False, **unknown: Never) -> "Tensor":
        """Return the average over some axes, or over all of them."""
        if unknown:
            raise unexpected("mean", unknown)
        return late_bound.namespace.mean(self, axis=axis, keepdims=keepdims)

    def max(self, axis: Any = None, keepdims: bool = False, **unknown: Never) -> "Tensor":
        """Return the largest element over some axes, or over all of them."""
        if unknown:
            raise unexpected("max", unknown)
        return late_bound.namespace.max(self, axis=axis, keepdims=keepdims)

    def min(self, axis: Any = None, keepdims: bool = False, **unknown: Never) -> "Tensor":
        """Return the smallest element over some axes, or over all of them."""
        if unknown:
            raise unexpected("min", unknown)
        return late_bound.namespace.min(self, axis=axis, keepdims=keepdims)

    def var(
        self, axis: Any = None, *, correction: Any = 0.0, keepdims: bool = False, **unknown: Never
    ) -> "Tensor":
        """Return the variance over some axes; the divisor is the count less ``correction``."""
        if unknown:
            raise unexpected("var", unknown)
        return late_bound.namespace.var(self, axis=axis, correction=correction, keepdims=keepdims)

    def std(
        self, axis: Any = None, *, correction: Any = 0.0, keepdims: bool = False, **unknown: Never
    ) -> "Tensor":
        """Return the standard deviation over some axes; ``correction`` as in ``var``."""
        if unknown:
            raise unexpected("std", unknown)
        return late_bound.namespace.std(self, axis=axis, correction=correction, keepdims=keepdims)

    def argmax(self, axis: Any = None, keepdims: bool = False, **unknown: Never) -> "Tensor":
        """Return where the largest element is, along an axis or counted over all elements."""
        if unknown:
            raise unexpected("argmax", unknown)
        return late_bound.namespace.argmax(self, axis=axis, keepdims=keepdims)

    def argmin(self, axis: Any = None, keepdims: bool = False, **unknown: Never) -> "Tensor":
        """Return where the smallest element is, along an axis or counted over all elements."""
        if unknown:
            raise unexpected("argmin", unknown)
        return late_bound.namespace.argmin(self, axis=axis, keepdims=keepdims)

    def all(self, axis: Any = None, keepdims: bool = False, **unknown: Never) -> "Tensor":
        """Say whether all elements are true, over some axes or over all of them."""
        if unknown:
            raise unexpected("all", unknown)
        return late_bound.namespace.all(self, axis=axis, keepdims=keepdims)

    def any(self, axis: Any = None, keepdims: bool = False, **unknown: Never) -> "Tensor":
        """Say whether some element is true, over some axes or over all of them."""
        if unknown:
            raise unexpected("any", unknown)
        return late_bound.namespace.any(self, axis=axis, keepdims=keepdims)

    def norm(
        self, ord: Any = 2, axis: Any = None, *, keepdims: bool = False, **unknown: Never
    ) -> "Tensor":
        """Return the length as a vector, of this order, over some axes or over all of them."""
        if unknown:
            raise unexpected("norm", unknown)
        return late_bound.namespace.linalg.vector_norm(self, axis=axis, ord=ord, keepdims=keepdims)

    def logsumexp(self, axis: Any = None, keepdims: bool = False, **unknown: Never) -> "Tensor":
        """Return the logarithm of the sum of exponentials over some axes, or over all of them."""
        if unknown:
            raise unexpected("logsumexp", unknown)
        return late_bound.namespace.logsumexp(self, axis=axis, keepdims=keepdims)

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

    def squeeze(self: Any, axis: Any = None, **unknown: Never) -> "Tensor":
        """Remove axes of length 1, some or all of them."""
        if unknown:
            raise unexpected("squeeze", unknown)
        return late_bound.namespace.squeeze(self, axis=axis)

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

    def abs(self) -> "Tensor":
        """Return the absolute value of each element."""
        return late_bound.namespace.abs(self)

    def exp(self) -> "Tensor":
        """Return the exponential of each element."""
        return late_bound.namespace.exp(self)

    def log(self) -> "Tensor":
        """Return the natural logarithm of each element."""
        return late_bound.namespace.log(self)

    def sqrt(self) -> "Tensor":
        """Return the square root of each element."""
        return late_bound.namespace.sqrt(self)

    def square(self) -> "Tensor":
        """Return the square of each element."""
        return late_bound.namespace.square(self)

    def sin(self) -> "Tensor":
        """Return the sine of each element."""
        return late_bound.namespace.sin(self)

    def cos(self) -> "Tensor":
        """Return the cosine of each element."""
        return late_bound.namespace.cos(self)

    def tanh(self) -> "Tensor":
        """Return the hyperbolic tangent of each element."""
        return late_bound.namespace.tanh(self)

    def sigmoid(self) -> "Tensor":
        """Return ``1 / (1 + exp(-x))`` of each element."""
        return late_bound.namespace.sigmoid(self)

    def relu(self) -> "Tensor":
        """Return each element, or zero where it is negative."""
        return late_bound.namespace.relu(self)

    def sign(self) -> "Tensor":
        """Return the sign of each element."""
        return late_bound.namespace.sign(self)

    def round(self) -> "Tensor":
        """Return each element rounded to the nearest whole number."""
        return late_bound.namespace.round(self)

    def floor(self) -> "Tensor":
        """Return each element rounded down."""
        return late_bound.namespace.floor(self)

    def ceil(self) -> "Tensor":
        """Return each element rounded up."""
        return late_bound.namespace.ceil(self)

    def conj(self) -> "Tensor":
        """Return the complex conjugate of each element."""
        return late_bound.namespace.conj(self)

    def pow(self, exponent: Any, /) -> "Tensor":
        """Return each element to a power."""
        return late_bound.namespace.pow(self, exponent)

    def clip(self, min: Any = None, max: Any = None) -> "Tensor":
        """Return each element, or the nearer bound where it is outside of them."""
        return late_bound.namespace.clip(self, min, max)

    clamp = clip

    def masked_fill(self: Any, mask: Any, value: Any) -> "Tensor":
        """Return `value` where the mask is true, the elements elsewhere."""
        if self.dtype.kind in "fc" and type(value) in (int, float):
            fitting(value, self.dtype)
        return late_bound.namespace.where(mask, value, self)

    def softmax(self, axis: Any = -1, **unknown: Never) -> "Tensor":
        """Return exponentials divided by their sum along an axis."""
        if unknown:
            raise unexpected("softmax", unknown)
        return late_bound.namespace.softmax(self, axis=axis)

    def log_softmax(self, axis: Any = -1, **unknown: Never) -> "Tensor":
        """Return the logarithm of ``softmax``."""
        if unknown:
            raise unexpected("log_softmax", unknown)
        return late_bound.namespace.log_softmax(self, axis=axis)

    @property
    def real(self) -> "Tensor":
        """The real part."""
        return late_bound.namespace.real(self)

    @property
    def imag(self) -> "Tensor":
        """The imaginary part."""
        return late_bound.namespace.imag(self)

    # Products

    def matmul(self, other: Any, /) -> "Tensor":
        """Return the product of matrices, or of stacks of matrices."""
        return late_bound.namespace.matmul(self, other)

    def dot(self: Any, other: Any, /) -> "Tensor":
        """Return the sum of the products of two vectors, unconjugated."""
        if self.ndim != 1 or other.ndim != 1:
            raise ShapeError(
                f"expected two vectors in dot, got shapes {self.shape} and {other.shape}; use @ "
                "for matrices"
            )
        return late_bound.namespace.matmul(self, other)

    # Copies, dtypes and devices

    def clone(self) -> "Tensor":
        """Return a copy in memory of its own, with the same history."""
        return late_bound.namespace.clone(self)

    copy = clone

    def astype(self, dtype: Any, /, *, copy: bool = True) -> "Tensor":
        """Convert to another dtype."""
        return late_bound.namespace.astype(self, dtype, copy=copy)

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
