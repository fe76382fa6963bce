"""Sums of products by named axes; the general ``einsum`` is a sequence of these."""

from string import ascii_letters
from typing import Any

from telegrad.rules.primitive import LINEAR, Primitive


def _gradient(xp: Any, part: Any, known: str, labels: str, shape: tuple[int, ...]) -> Any:
    """Return the gradient of an operand with these labels from its sums over the `known` ones."""
    if known == labels:
        return part
    lengths = dict(zip(labels, shape))
    unique = "".join(dict.fromkeys(labels))
    if known != unique:
        # Axes that were summed over in this operand alone: the gradient is the same all along.
        part = xp.reshape(part, tuple(lengths[c] if c in known else 1 for c in unique))
        part = xp.broadcast_to(part, tuple(lengths[c] for c in unique))
    spare = iter(_spare_labels(labels))
    placed = ""
    for label in labels:
        if label not in placed:
            placed += label
            continue
        # A label named again took a diagonal: only there is a gradient.
        again = next(spare)
        eye = xp.eye(lengths[label], dtype=xp.dtype_of(part))
        part = xp.einsum(f"{unique},{label}{again}->{unique}{again}", part, eye)
        unique += again
        placed += again
    return part if placed == unique else xp.einsum(f"{unique}->{placed}", part)


def _spare_labels(labels: str) -> str:
    return "".join(c for c in ascii_letters if c not in labels)


def _by_left(xp: Any, g: Any, s: Any) -> Any:
    terms, result = s.subscripts.split("->")
    left, right = terms.split(",")
    known = "".join(c for c in dict.fromkeys(left) if c in right or c in result)
    part = xp.einsum(f"{result},{right}->{known}", g, s.y)
    return _gradient(xp, part, known, left, s.x_shape)


def _by_right(xp: Any, g: Any, s: Any) -> Any:
    terms, result = s.subscripts.split("->")
    left, right = terms.split(",")
    known = "".join(c for c in dict.fromkeys(right) if c in left or c in result)
    part = xp.einsum(f"{result},{left}->{known}", g, s.x)
    return _gradient(xp, part, known, right, s.y_shape)


EINSUM = Primitive(
    "einsum",
    forward=lambda xp, x, y, *, subscripts: xp.einsum(subscripts, x, y),
    saves=("y x.shape", "x y.shape"),
    vjp=(_by_left, _by_right),
    jvp=(LINEAR, LINEAR),
    options=("subscripts",),
)


def _by_only(xp: Any, g: Any, s: Any) -> Any:
    labels, result = s.subscripts.split("->")
    known = "".join(c for c in dict.fromkeys(labels) if c in result)
    part = g if known == result else xp.einsum(f"{result}->{known}", g)
    return _gradient(xp, part, known, labels, s.x_shape)


EINSUM_ONE = Primitive(
    "einsum_one",
    forward=lambda xp, x, *, subscripts: xp.einsum(subscripts, x),
    saves=("x.shape",),
    vjp=(_by_only,),
    jvp=(LINEAR,),
    options=("subscripts",),
)
