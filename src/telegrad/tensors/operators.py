"""The operators of a Tensor: each is a primitive, with its fast path.

In-place operators give the Tensor a new value and a new history (``Tensor.rebind``); nothing that
saw the old value sees the new one.
"""

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from telegrad.errors import DTypeError
from telegrad.rules import arithmetic, logic
from telegrad.tensors.late_bound import late_bound
from telegrad.tensors.recording.fast_paths import binary, reversed_binary, unary

if TYPE_CHECKING:
    from telegrad.tensors.tensor import Tensor


def _is_compared(other: Any) -> bool:
    """Say whether ``==`` is elementwise: with another library's array too, which it refuses."""
    return late_bound.takes(other) or hasattr(other, "__dlpack__")


def _in_place(symbol: str, compute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def call(self: Any, other: Any, /) -> Any:
        return late_bound.namespace.in_place(self, symbol, compute, other)

    return call


class Operators:
    """A part of Tensor: its operators."""

    __slots__ = ()

    __add__ = binary(arithmetic.ADD)
    __radd__ = reversed_binary(arithmetic.ADD)
    __sub__ = binary(arithmetic.SUBTRACT)
    __rsub__ = reversed_binary(arithmetic.SUBTRACT)
    __mul__ = binary(arithmetic.MULTIPLY)
    __rmul__ = reversed_binary(arithmetic.MULTIPLY)
    __truediv__ = binary(arithmetic.DIVIDE)
    __rtruediv__ = reversed_binary(arithmetic.DIVIDE)
    __pow__ = binary(arithmetic.POW)
    __rpow__ = reversed_binary(arithmetic.POW)
    __floordiv__ = binary(arithmetic.FLOOR_DIVIDE)
    __rfloordiv__ = reversed_binary(arithmetic.FLOOR_DIVIDE)
    __mod__ = binary(arithmetic.REMAINDER)
    __rmod__ = reversed_binary(arithmetic.REMAINDER)
    __and__ = binary(logic.BITWISE_AND)
    __rand__ = reversed_binary(logic.BITWISE_AND)
    __or__ = binary(logic.BITWISE_OR)
    __ror__ = reversed_binary(logic.BITWISE_OR)
    __xor__ = binary(logic.BITWISE_XOR)
    __rxor__ = reversed_binary(logic.BITWISE_XOR)
    __lshift__ = binary(logic.BITWISE_LEFT_SHIFT)
    __rlshift__ = reversed_binary(logic.BITWISE_LEFT_SHIFT)
    __rshift__ = binary(logic.BITWISE_RIGHT_SHIFT)
    __rrshift__ = reversed_binary(logic.BITWISE_RIGHT_SHIFT)
    __neg__ = unary(arithmetic.NEGATIVE)
    __pos__ = unary(arithmetic.POSITIVE)
    __invert__ = unary(logic.BITWISE_INVERT)
    __lt__ = binary(logic.LESS)
    __le__ = binary(logic.LESS_EQUAL)
    __gt__ = binary(logic.GREATER)
    __ge__ = binary(logic.GREATER_EQUAL)

    def __eq__(self, other: Any, /) -> "Tensor":  # type: ignore[override]
        return _EQUAL(self, other) if _is_compared(other) else NotImplemented

    def __ne__(self, other: Any, /) -> "Tensor":  # type: ignore[override]
        return _NOT_EQUAL(self, other) if _is_compared(other) else NotImplemented

    def __abs__(self) -> "Tensor":
        return late_bound.namespace.abs(self)  # type: ignore[no-any-return]

    def __matmul__(self, other: Any, /) -> "Tensor":
        return late_bound.namespace.matmul(self, other)  # type: ignore[no-any-return]

    def __rmatmul__(self, other: Any, /) -> "Tensor":
        return late_bound.namespace.matmul(other, self)  # type: ignore[no-any-return]

    def __getitem__(self, index: Any, /) -> "Tensor":
        return late_bound.namespace.getitem(self, index)  # type: ignore[no-any-return]

    def __setitem__(self, index: Any, value: Any, /) -> None:
        late_bound.namespace.setitem(self, index, value)

    def __iter__(self: Any) -> Any:
        if not self.ndim:
            raise DTypeError("expected a tensor with axes to iterate over, got a 0-d tensor")
        return iter(late_bound.namespace.unstack(self))

    def __contains__(self, value: Any, /) -> bool:
        return bool(late_bound.namespace.any(self == value))

    __iadd__ = _in_place("+=", operator.add)
    __isub__ = _in_place("-=", operator.sub)
    __imul__ = _in_place("*=", operator.mul)
    __itruediv__ = _in_place("/=", operator.truediv)
    __ipow__ = _in_place("**=", operator.pow)
    __ifloordiv__ = _in_place("//=", operator.floordiv)
    __imod__ = _in_place("%=", operator.mod)
    __imatmul__ = _in_place("@=", operator.matmul)
    __iand__ = _in_place("&=", operator.and_)
    __ior__ = _in_place("|=", operator.or_)
    __ixor__ = _in_place("^=", operator.xor)
    __ilshift__ = _in_place("<<=", operator.lshift)
    __irshift__ = _in_place(">>=", operator.rshift)


_EQUAL = binary(logic.EQUAL)
_NOT_EQUAL = binary(logic.NOT_EQUAL)
