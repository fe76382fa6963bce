"""Undoing broadcasting and dtype promotion, in one place.

A function that broadcast or promoted its input gives a gradient of the result's shape and dtype.
``fit`` brings it back to the input's: sums over the axes that were stretched, takes the real part
where the input is real, and casts back.
"""

from typing import Any

from telegrad.errors import InternalError


def fit(xp: Any, gradient: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return the gradient for an input of this shape and dtype; see the module's docstring."""
    if gradient.shape != shape:
        gradient = _sum_to(xp, gradient, shape)
    if gradient.dtype is not dtype and gradient.dtype != dtype:
        if xp.isdtype(gradient.dtype, "complex floating") and not xp.isdtype(
            dtype, "complex floating"
        ):
            gradient = xp.real(gradient)
        if gradient.dtype != dtype:
            gradient = xp.astype(gradient, dtype)
    return gradient


def _sum_to(xp: Any, gradient: Any, shape: tuple[int, ...]) -> Any:
    wide = gradient.shape
    extra = len(wide) - len(shape)
    if extra == 1 and wide[1:] == shape:
        return xp.sum(gradient, axis=0)
    kept = gradient.shape[extra:] if extra >= 0 else None
    stretched = []
    if kept is not None and kept != shape:
        for axis, (length, wide) in enumerate(zip(shape, kept)):
            if length != wide:
                stretched.append(axis + extra)
                if length != 1:
                    kept = None
    if kept is None:
        raise InternalError(
            f"expected a gradient that broadcasting made from shape {shape}, got shape "
            f"{tuple(gradient.shape)}; the rule that returned it is wrong"
        )
    if not stretched:
        return xp.sum(gradient, axis=tuple(range(extra)))
    return xp.reshape(xp.sum(gradient, axis=(*range(extra), *stretched)), shape)
