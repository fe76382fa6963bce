"""Forward mode: enter and leave dual levels, make and unpack dual tensors.

Arguments are checked here; ``tensors.forward.duals`` does the work. A level belongs to the thread
or async task that entered it, and levels are left in reverse order. ``make_dual`` returns a new
Tensor and leaves its argument unchanged.
"""

from contextlib import ContextDecorator
from typing import Any, NamedTuple

from telegrad.errors import DTypeError, LevelError
from telegrad.tensors import Tensor
from telegrad.tensors.describe import no_tensor
from telegrad.tensors.forward.duals import join, split
from telegrad.tensors.forward.levels import LEVELS, Level
from telegrad.tensors.likeness import check_like

__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "unpack_dual",
]


class UnpackedDualTensor(NamedTuple):
    """The primal and the tangent of a dual tensor; the tangent may be None.

    Examples:
        >>> fwAD = tg.autograd.forward_ad
        >>> with fwAD.dual_level():
        ...     print(fwAD.unpack_dual(tg.tensor([1.0])).tangent)
        None
    """

    primal: Tensor
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Enter a new innermost level; return its number, which is valid until the level is left.

    Examples:
        >>> level = tg.autograd.forward_ad.enter_dual_level()
        >>> tg.autograd.forward_ad.exit_dual_level(level)
    """
    level = Level()
    stack = LEVELS.get()
    level.token = LEVELS.set((*stack, level))
    return len(stack)


def exit_dual_level(level: int | None = None) -> None:
    """Leave the innermost level: its tangents are dropped, and its duals are ordinary again.

    `level` may give the level's number; only the innermost may be left.

    Raises:
        LevelError: If no level is open, or another one is the innermost.

    Examples:
        >>> level = tg.autograd.forward_ad.enter_dual_level()
        >>> tg.autograd.forward_ad.exit_dual_level(level)
    """
    stack = LEVELS.get()
    if not stack:
        raise LevelError(
            "expected an open dual level to leave, got none; was it left already, or entered in "
            "another thread? use `with dual_level():` to pair both"
        )
    innermost = len(stack) - 1
    if level is not None and level != innermost:
        if 0 <= level < innermost:
            advice = f"leave levels {innermost} to {level + 1} first"
        else:
            advice = "that one was left already, or never entered"
        raise LevelError(
            f"expected level {innermost}, the innermost, as the one to leave, got {level}; {advice}"
        )
    _leave(stack[-1], innermost)


def _leave(level: Level, number: int) -> None:
    try:
        LEVELS.reset(level.token)  # type: ignore[arg-type]
    except (ValueError, RuntimeError) as error:
        raise LevelError(
            f"expected a level entered by this thread or async task, got level {number}, inherited "
            "from the one that started this; leave it there, where it was entered"
        ) from error
    level.close()


class dual_level(ContextDecorator):
    """Enter a level for a block, and leave it at the end, also by an exception.

    ``with dual_level() as level:`` binds the level's number.

    Examples:
        >>> fwAD = tg.autograd.forward_ad
        >>> with fwAD.dual_level():
        ...     y = tg.sin(fwAD.make_dual(tg.tensor([0.0]), tg.tensor([1.0])))
        ...     print(fwAD.unpack_dual(y).tangent)
        tensor([1.])
    """

    def __init__(self) -> None:
        self._entered: list[Level] = []

    def _recreate_cm(self) -> "dual_level":
        return dual_level()

    def __enter__(self) -> int:
        number = enter_dual_level()
        self._entered.append(LEVELS.get()[-1])
        return number

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        mine = self._entered.pop()
        stack = LEVELS.get()
        if mine not in stack:
            if kind is None:
                raise LevelError(
                    "expected the level of this block to be open at its end, got it left already; "
                    "leave it to the with statement, or use enter_dual_level and exit_dual_level"
                )
            return
        # Also leave levels entered inside and still open: an exception must not leave levels open.
        left_open = len(stack) - 1 - stack.index(mine)
        for number in range(len(stack) - 1, stack.index(mine) - 1, -1):
            _leave(stack[number], number)
        if left_open and kind is None:
            raise LevelError(
                f"expected every level entered in this block to be left in it, got {left_open} "
                "still open (now closed); call exit_dual_level for each enter_dual_level"
            )


def _find(level: int | None, purpose: str) -> Level:
    stack = LEVELS.get()
    if not stack:
        raise LevelError(
            f"expected an open dual level to {purpose}, got none in this thread or async task; "
            "call enter_dual_level() or use `with dual_level():` first"
        )
    number = len(stack) - 1 if level is None else level
    if not 0 <= number < len(stack):
        raise LevelError(
            f"expected a level from 0 to {len(stack) - 1} to {purpose}, got {level}; those are the "
            "levels open here"
        )
    found = stack[number]
    if not found.is_open:
        raise LevelError(
            f"expected an open level to {purpose}, got level {number}, which the thread or async "
            "task that entered it has left"
        )
    return found


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """Make a tensor with the value of `tensor` and this tangent at a level.

    It is differentiable with respect to both: histories and outer tangents are kept.

    Arguments:
        tensor: The primal, of a floating or complex dtype.
        tangent: The tangent, of the same shape and dtype.
        level: The number of an open level; the innermost by default.

    Raises:
        DTypeError: If the primal is neither floating nor complex, or the tangent is of another
            dtype.
        ShapeError: If the shapes differ.
        LevelError: If no level is open, or the tensor has a tangent at that level already.

    Examples:
        >>> fwAD = tg.autograd.forward_ad
        >>> with fwAD.dual_level():
        ...     print(fwAD.unpack_dual(fwAD.make_dual(tg.tensor([3.0]), tg.tensor([1.0])) ** 2))
        UnpackedDualTensor(primal=tensor([9.]), tangent=tensor([6.]))
    """
    found = _find(level, "make a dual tensor")
    for name, value in (("tensor", tensor), ("tangent", tangent)):
        if not isinstance(value, Tensor):
            raise no_tensor(value, f"as {name} of make_dual")
    if tensor.dtype.kind not in "fc":
        raise DTypeError(
            f"expected a primal of floating or complex dtype, got {tensor.dtype}; only such values "
            "have derivatives, convert it first, e.g. with .to(telegrad.float32)"
        )
    check_like(tangent, tensor, "the tangent of make_dual")
    number = LEVELS.get().index(found)
    for name, value in (("tensor", tensor), ("tangent", tangent)):
        if found in (value.tangents or ()):
            raise LevelError(
                f"expected a {name} without a tangent at level {number}, got one that has it; a "
                "second derivative needs a level of its own: enter_dual_level() again"
            )
    return join(tensor, found, tangent)


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """Return the primal and the tangent at a level; both keep their outer tangents.

    `level` is the innermost by default. The tangent is None if the tensor has none or no level is
    open.

    Raises:
        DTypeError: If `tensor` is not a Tensor.

    Examples:
        >>> tg.autograd.forward_ad.unpack_dual(tg.tensor([1.0]))
        UnpackedDualTensor(primal=tensor([1.]), tangent=None)
    """
    if not isinstance(tensor, Tensor):
        raise no_tensor(tensor, "for unpack_dual")
    if level is None and not LEVELS.get():
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(*split(tensor, _find(level, "unpack a dual tensor")))
