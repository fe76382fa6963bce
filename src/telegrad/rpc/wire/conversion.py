"""Converts plain values from a peer to the types that they must have."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def converter(kind: type[T]) -> Callable[[Any], T]:
    """Return a function that makes a `kind` of plain values, or raises ``ValidationError``.

    Call it where a module is imported. msgspec looks up the fields of a Struct when one is first
    decoded; a thread that decodes another at that moment takes the fields found so far for all,
    and the process crashes (msgspec 0.19 to 0.22). A decoder looks them up at once, and Python
    imports a module on one thread.
    """
    msgspec.msgpack.Decoder(kind)
    return partial(msgspec.convert, type=kind)
