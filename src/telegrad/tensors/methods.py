"""The methods of a Tensor that are public functions otherwise spelled: ``x.sum()`` is ``sum(x)``.

Only what people type every day; everything else is a function. Axes and options are those of the
functions; where PyTorch has a method that the array API standard lacks (``permute``, ``expand``),
it has PyTorch's arguments.
"""
# The namespace is lent by a later layer, so its type is not known here.
# mypy: disable-error-code="no-any-return"

from typing import TYPE_CHECKING, Any

import numpy as np

from telegrad.errors import ShapeError
from telegrad.tensors.lent import lent

if TYPE_CHECKING:
    from telegrad.tensors.tensor import Tensor

__all__ = ["Methods"]


class Methods:
    """Mixed into Tensor, which see."""

    __slots__ = ()

    # Many values to fewer

    def sum(self, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> "Tensor":
        """The sum over some axes, or over all of them."""
        return lent.namespace.sum(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def prod(self, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> "Tensor":
        """The product over some axes, or over all of them."""
        return lent.namespace.prod(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def mean(self, axis: Any = None, *, keepdims: bool = False) -> "Tensor":
        """The average over some axes, or over all of them."""
        return lent.namespace.mean(self, axis=axis, keepdims=keepdims)

    def max(self, axis: Any = None, *, keepdims: bool = False) -> "Tensor":
        """The largest element over some axes, or over all of them."""
        return lent.namespace.max(self, axis=axis, keepdims=keepdims)

    def min(self, axis: Any = None, *, keepdims: bool = False) -> "Tensor":
        """The smallest element over some axes, or over all of them."""
        return lent.namespace.min(self, axis=axis, keepdims=keepdims)

    def var(self, axis: Any = None, *, correction: Any = 0.0, keepdims: bool = False) -> "Tensor":
        """The variance over some axes; the divisor is the count less ``correction``."""
        return lent.namespace.var(self, axis=axis, correction=correction, keepdims=keepdims)

    def std(self, axis: Any = None, *, correction: Any = 0.0, keepdims: bool = False) -> "Tensor":
        """The standard deviation over some axes; the divisor is the count less ``correction``."""
        return lent.namespace.std(self, axis=axis, correction=correction, keepdims=keepdims)

    def argmax(self, axis: Any = None, *, keepdims: bool = False) -> "Tensor":
        """Where the largest element is, along an axis or counted over all elements."""
        return lent.namespace.argmax(self, axis=axis, keepdims=keepdims)

    def argmin(self, axis: Any = None, *, keepdims: bool = False) -> "Tensor":
        """Where the smallest element is, along an axis or counted over all elements."""
        return lent.namespace.argmin(self, axis=axis, keepdims=keepdims)

    def all(self, axis: Any = None, *, keepdims: bool = False) -> "Tensor":
        """Whether all elements are true, over some axes or over all of them."""
        return lent.namespace.all(self, axis=axis, keepdims=keepdims)

    def any(self, axis: Any = None, *, keepdims: bool = False) -> "Tensor":
        """Whether some element is true, over some axes or over all of them."""
        return lent.namespace.any(self, axis=axis, keepdims=keepdims)

    def norm(self, axis: Any = None, *, ord: Any = 2, keepdims: bool = False) -> "Tensor":
        """The length as a vector, over some axes or over all of them."""
        return lent.namespace.linalg.vector_norm(self, axis=axis, ord=ord, keepdims=keepdims)

    def logsumexp(self, axis: Any = None, *, keepdims: bool = False) -> "Tensor":
        """The logarithm of the sum of exponentials over some axes, or over all of them."""
        return lent.namespace.logsumexp(self, axis=axis, keepdims=keepdims)

    def cumsum(self, axis: Any = None) -> "Tensor":
        """The running sum along an axis."""
        return lent.namespace.cumulative_sum(self, axis=axis)

    # Shape and order

    def reshape(self, *shape: Any) -> "Tensor":
        """The same elements in another shape, given as a tuple or as several numbers."""
        return lent.namespace.reshape(self, _shape(shape))

    def flatten(self) -> "Tensor":
        """All elements on one axis."""
        return lent.namespace.reshape(self, (-1,))

    def squeeze(self: Any, axis: Any = None) -> "Tensor":
        """Without some axes of length 1, or without all of them."""
        if axis is None:
            axis = tuple(i for i, length in enumerate(self.shape) if length == 1)
        return lent.namespace.squeeze(self, axis=axis)

    def unsqueeze(self, axis: int) -> "Tensor":
        """With a new axis of length 1."""
        return lent.namespace.expand_dims(self, axis=axis)

    def permute(self, *axes: Any) -> "Tensor":
        """The axes in another order, given as a tuple or as several numbers."""
        return lent.namespace.permute_dims(self, _shape(axes))

    def transpose(self: Any, axis1: int, axis2: int) -> "Tensor":
        """Two axes exchanged."""
        for axis in (axis1, axis2):
            if not -self.ndim <= axis < self.ndim:
                raise ShapeError(
                    f"expected two axes of shape {self.shape} in transpose, got {axis1} and {axis2}"
                )
        order = list(range(self.ndim))
        order[axis1], order[axis2] = order[axis2], order[axis1]
        return lent.namespace.permute_dims(self, tuple(order))

    def expand(self: Any, *shape: Any) -> "Tensor":
        """Stretched to a larger shape; -1 leaves a length as it is."""
        wanted = _shape(shape)
        own = (-1,) * (len(wanted) - self.ndim) + self.shape
        lengths = tuple(n if w == -1 else w for w, n in zip(wanted, own))
        return lent.namespace.broadcast_to(self, lengths)

    @property
    def T(self: Any) -> "Tensor":
        """The transposed matrix; only for two axes, see ``mT``."""
        if self.ndim != 2:
            raise ShapeError(
                f"expected a matrix for .T, got shape {self.shape}; use .mT for stacks of matrices "
                "or permute_dims for other orders"
            )
        return lent.namespace.matrix_transpose(self)

    @property
    def mT(self) -> "Tensor":
        """The last two axes exchanged."""
        return lent.namespace.matrix_transpose(self)

    @property
    def at(self) -> Any:
        """``x.at[index].set(values)`` and its kin: a copy of x with these places changed."""
        return lent.namespace.at(self)

    # Element by element

    def abs(self) -> "Tensor":
        """The absolute value of each element."""
        return lent.namespace.abs(self)

    def exp(self) -> "Tensor":
        """The exponential of each element."""
        return lent.namespace.exp(self)

    def log(self) -> "Tensor":
        """The natural logarithm of each element."""
        return lent.namespace.log(self)

    def sqrt(self) -> "Tensor":
        """The square root of each element."""
        return lent.namespace.sqrt(self)

    def square(self) -> "Tensor":
        """The square of each element."""
        return lent.namespace.square(self)

    def sin(self) -> "Tensor":
        """The sine of each element."""
        return lent.namespace.sin(self)

    def cos(self) -> "Tensor":
        """The cosine of each element."""
        return lent.namespace.cos(self)

    def tanh(self) -> "Tensor":
        """The hyperbolic tangent of each element."""
        return lent.namespace.tanh(self)

    def sigmoid(self) -> "Tensor":
        """``1 / (1 + exp(-x))`` of each element."""
        return lent.namespace.sigmoid(self)

    def relu(self) -> "Tensor":
        """Each element, or zero where it is negative."""
        return lent.namespace.relu(self)

    def sign(self) -> "Tensor":
        """The sign of each element."""
        return lent.namespace.sign(self)

    def round(self) -> "Tensor":
        """Each element rounded to the nearest whole number."""
        return lent.namespace.round(self)

    def floor(self) -> "Tensor":
        """Each element rounded down."""
        return lent.namespace.floor(self)

    def ceil(self) -> "Tensor":
        """Each element rounded up."""
        return lent.namespace.ceil(self)

    def conj(self) -> "Tensor":
        """The complex conjugate of each element."""
        return lent.namespace.conj(self)

    def pow(self, exponent: Any, /) -> "Tensor":
        """Each element to a power."""
        return lent.namespace.pow(self, exponent)

    def clip(self, min: Any = None, max: Any = None) -> "Tensor":
        """Each element, or the nearer bound where it is outside of them."""
        return lent.namespace.clip(self, min, max)

    def masked_fill(self, mask: Any, value: Any) -> "Tensor":
        """`value` where the mask is true, the elements elsewhere."""
        return lent.namespace.where(mask, value, self)

    def softmax(self, axis: Any = -1) -> "Tensor":
        """Exponentials divided by their sum along an axis."""
        return lent.namespace.softmax(self, axis=axis)

    def log_softmax(self, axis: Any = -1) -> "Tensor":
        """The logarithm of ``softmax``."""
        return lent.namespace.log_softmax(self, axis=axis)

    @property
    def real(self) -> "Tensor":
        """The real part."""
        return lent.namespace.real(self)

    @property
    def imag(self) -> "Tensor":
        """The imaginary part."""
        return lent.namespace.imag(self)

    # Products

    def matmul(self, other: Any, /) -> "Tensor":
        """The product of matrices, or of stacks of matrices."""
        return lent.namespace.matmul(self, other)

    def dot(self: Any, other: Any, /) -> "Tensor":
        """The sum of the products of two vectors, unconjugated."""
        if self.ndim != 1 or other.ndim != 1:
            raise ShapeError(
                f"expected two vectors in dot, got shapes {self.shape} and {other.shape}; use @ "
                "for matrices"
            )
        return lent.namespace.matmul(self, other)

    # Copies, dtypes and devices

    def clone(self) -> "Tensor":
        """A copy in memory of its own, with the same history."""
        return lent.namespace.clone(self)

    def copy(self) -> "Tensor":
        """The same as ``clone``."""
        return lent.namespace.clone(self)

    def astype(self, dtype: Any, /, *, copy: bool = True) -> "Tensor":
        """With another dtype."""
        return lent.namespace.astype(self, dtype, copy=copy)

    def double(self) -> "Tensor":
        """In float64 (complex128 for complex values)."""
        return _in_precision(self, "float64", "complex128")

    def float(self) -> "Tensor":
        """In float32 (complex64 for complex values)."""
        return _in_precision(self, "float32", "complex64")

    def long(self) -> "Tensor":
        """In int64; fractions are cut off."""
        return lent.namespace.astype(self, np.int64, copy=False)

    def to(self: Any, *where: Any, dtype: Any = None, device: Any = None) -> "Tensor":
        """This tensor with another dtype or on another device; itself where nothing changes."""
        for each in where:
            if _is_dtype(each):
                dtype = each
            else:
                device = each
        result = self
        if dtype is not None and np.dtype(dtype) != self.dtype:
            result = lent.namespace.astype(result, dtype)
        if device is not None:
            result = lent.namespace.to_device(result, device)
        return result

    def to_device(self, device: Any, /, *, stream: Any = None) -> "Tensor":
        """This tensor on another device."""
        return lent.namespace.to_device(self, device)


def _in_precision(x: Any, real: str, complex_: str) -> "Tensor":
    dtype = complex_ if x.dtype.kind == "c" else real
    return lent.namespace.astype(x, np.dtype(dtype), copy=False)


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
