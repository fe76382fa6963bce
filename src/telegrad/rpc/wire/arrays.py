"""How an array of numbers travels: as dtype code, shape and raw bytes.

The bytes of a small array stand in its descriptor, so a frame of small arrays is a header and
nothing else; those of a large one are a buffer of the frame, not copied. Pickling an array costs
20 µs, this 1 µs. Knows NumPy arrays only. Invariant: the shape and dtype of a descriptor account
for exactly the bytes that came, or nothing is built.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from telegrad.errors import ProtocolViolation
from telegrad.rpc.wire.frames import Buffer

__all__ = [
    "CODES",
    "Descriptor",
    "build",
    "build_all",
    "describe",
    "describe_all",
    "inline_below",
    "is_raw",
]

Descriptor = list[Any]
"""[code, bytes, shape]; [NAMED, bytes, shape, dtype.str] for a dtype that has no code.

Instead of the bytes stands None where they are the frame's next buffer.
"""

_NAMES: Final = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_DTYPES: Final = dict(enumerate(map(np.dtype, _NAMES)))
CODES: Final = {dtype: code for code, dtype in _DTYPES.items()}
"""What stands for the usual dtypes."""
NAMED: Final = len(_DTYPES)
# The names, as NumPy writes them, of dtypes that raw bytes describe in full; arrays of others, such
# as structures and Python objects, are pickled. NumPy reads other spellings, too, and crashes on
# some: M8[s/0]. None has items of no size: the bytes would not bound their number.
_NAME: Final = re.compile(
    r"[<>|][biufcSU][1-9][0-9]{0,9}"
    r"|[<>][mM]8(\[([1-9][0-9]{0,9})?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?"
)
# Bytes: of one array in a descriptor, and of all such arrays of a header.
_INLINE_BELOW: Final = 16 << 10
_MOST_INLINE: Final = 64 << 10


def is_raw(array: "np.ndarray[Any, Any]") -> bool:
    """Say whether raw bytes are all there is to this array."""
    dtype = array.dtype
    return dtype in CODES or _NAME.fullmatch(dtype.str) is not None


def inline_below(count: int) -> int:
    """Return the size below which arrays stand in the header, where there are `count` of them.

    Headers have a limit of their own: all such arrays together are 64 KB at most.
    """
    return _INLINE_BELOW if count <= _MOST_INLINE // _INLINE_BELOW else _MOST_INLINE // count


def describe(array: "np.ndarray[Any, Any]", buffers: list[Buffer], inline: int) -> Descriptor:
    """Return the descriptor of an array that is raw.

    Its bytes stand in it if they are fewer than `inline`, else they are appended to `buffers`.
    """
    data = None
    if array.nbytes < inline:
        data = array.tobytes()
    else:
        buffers.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    dtype = array.dtype
    code = CODES.get(dtype)
    if code is None:
        return [NAMED, data, array.shape, dtype.str]
    return [code, data, array.shape]


def describe_all(
    content: Sequence["np.ndarray[Any, Any]"], buffers: list[Buffer]
) -> list[Descriptor]:
    """Return the descriptors of all arrays of a message."""
    inline = inline_below(len(content))
    return [describe(array, buffers, inline) for array in content]


def build(descriptor: Descriptor, buffer: Buffer, most_dimensions: int) -> "np.ndarray[Any, Any]":
    """Return an array over the buffer's memory."""
    try:
        code = descriptor[0]
        dtype = _named_dtype(descriptor[3]) if code == NAMED else _DTYPES[code]
        # NumPy refuses a shape that needs more than the buffer has; it may also need less.
        array: np.ndarray[Any, Any] = np.ndarray(descriptor[2], dtype, buffer)
        if array.nbytes == len(buffer) and array.ndim <= most_dimensions:
            return array
    except (TypeError, ValueError, LookupError, OverflowError, MemoryError):
        pass
    size = len(buffer) if isinstance(buffer, (bytes, bytearray, memoryview)) else "no"
    raise ProtocolViolation(
        f"the array descriptor {descriptor!r:.200} does not describe a buffer of {size} bytes with "
        f"at most {most_dimensions} dimensions"
    )


def _named_dtype(name: Any) -> "np.dtype[Any]":
    if type(name) is str and _NAME.fullmatch(name):
        return np.dtype(name)
    raise ProtocolViolation(f"expected the dtype of plain numbers, got {name!r:.200}")


def build_all(
    descriptors: Sequence[Descriptor],
    buffers: Sequence[Buffer],
    first: int,
    most_dimensions: int,
) -> tuple[list["np.ndarray[Any, Any]"], int]:
    """Return the arrays, and the place of the first buffer from `first` on that none of them took.

    What came in a descriptor gets memory of its own, to which it may be written.
    """
    content = []
    for descriptor in descriptors:
        data = descriptor[1]
        # Nothing but bytes: of a number `bytearray` would make as many.
        if type(data) is bytes:
            data = bytearray(data)
        elif data is None:
            data = buffers[first]
            first += 1
        content.append(build(descriptor, data, most_dimensions))
    return content, first
