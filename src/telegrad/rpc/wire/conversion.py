"""Plain values that came from a peer, as the types that they are to have."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def converter(kind: type[T]) -> Callable[[Any], T]:
    """Return what makes a `kind` of plain values, or raises ``msgspec.ValidationError``.

    To be called where a module is imported. msgspec looks up the fields of a Struct when one is
    first decoded, and another thread that decodes one at that moment takes what is there so far
    for all of it: the process crashes (msgspec 0.19 to 0.22). A decoder looks them up at once, and
    Python imports a module on one thread.
    """
    msgspec.msgpack.Decoder(kind)
    return partial(msgspec.convert, type=kind)
