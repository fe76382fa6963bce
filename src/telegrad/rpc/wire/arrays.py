"""How an array of numbers travels: as dtype code, shape and raw bytes.

The bytes of a small array stand in its descriptor, so a frame of small arrays is a header and
nothing else; those of a large one are a buffer of the frame, not copied. Pickling an array costs
20 µs, this 1 µs. Knows NumPy arrays only. Invariant: the shape and dtype of a descriptor account
for exactly the bytes that came, or nothing is built.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from telegrad.errors import ProtocolViolation
from telegrad.rpc.wire.frames import Buffer


class Descriptor(msgspec.Struct, array_like=True, gc=False):
    """An array as it came: the code of its dtype, or ``dtype.str`` of one that has none.

    No `data` where the bytes are the frame's next buffer; what there is is memory of its own, to
    which it may be written.
    """

    code: int | str
    data: bytearray | None
    shape: list[int]


_NAMES: Final = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
# None is 0: a dtype without a code goes by its name.
CODES: Final = {np.dtype(name): code for code, name in enumerate(_NAMES, 1)}
"""What stands for the usual dtypes."""
# The names, as NumPy writes them, of dtypes that raw bytes describe in full; arrays of others, such
# as structures and Python objects, are pickled. NumPy reads other spellings, too, and crashes on
# some: M8[s/0]. None has items of no size: the bytes would not bound their number.
_NAME: Final = re.compile(
    r"[<>|][biufcSU][1-9][0-9]{0,9}"
    r"|[<>][mM]8(\[([1-9][0-9]{0,9})?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?"
)
# Bytes: of one array in a descriptor, and of all such arrays of a header, which has a limit.
_INLINE_BELOW: Final = 16 << 10
_MOST_INLINE: Final = 64 << 10


class _Dtypes(dict[int | str, "np.dtype[Any]"]):
    """The dtypes by their codes; those that go by their names are not kept."""

    def __missing__(self, name: int | str) -> "np.dtype[Any]":
        if isinstance(name, str) and _NAME.fullmatch(name):
            return np.dtype(name)
        raise ProtocolViolation(f"expected the dtype of plain numbers, got {name!r:.200}")


_DTYPES: Final = _Dtypes({code: dtype for dtype, code in CODES.items()})


def is_raw(array: "np.ndarray[Any, Any]") -> bool:
    """Say whether raw bytes are all there is to this array."""
    dtype = array.dtype
    return dtype in CODES or _NAME.fullmatch(dtype.str) is not None


def describe_all(
    content: Sequence["np.ndarray[Any, Any]"], buffers: list[Buffer]
) -> list[tuple[Any, ...]]:
    """Return what is sent of all arrays of a message, which are raw; see `Descriptor`.

    The bytes of small ones stand there, those of others are appended to `buffers`.
    """
    # Each may have its part of what the header has room for.
    inline = min(_INLINE_BELOW, _MOST_INLINE // (len(content) or 1))
    descriptors = []
    for array in content:
        data = None
        if array.nbytes < inline:
            data = array.tobytes()
        else:
            buffers.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        dtype = array.dtype
        descriptors.append((CODES.get(dtype) or dtype.str, data, array.shape))
    return descriptors


def build_all(
    descriptors: Sequence[Descriptor],
    buffers: Sequence[Buffer],
    first: int,
    most_dimensions: int,
) -> tuple[list["np.ndarray[Any, Any]"], int]:
    """Return the arrays, and the place of the first buffer from `first` on that none took."""
    content = []
    for each in descriptors:
        data: Buffer | None = each.data
        try:
            if data is None:
                data = buffers[first]
                first += 1
            # NumPy refuses a shape that needs more than the buffer has; it may also need less.
            array: np.ndarray[Any, Any] = np.ndarray(each.shape, _DTYPES[each.code], data)
            if array.nbytes == len(data) and array.ndim <= most_dimensions:
                content.append(array)
                continue
        except (TypeError, ValueError, LookupError, OverflowError, MemoryError):
            pass
        size = "no" if data is None else len(data)
        raise ProtocolViolation(
            f"the array descriptor {each!r:.200} does not describe a buffer of {size} bytes with "
            f"at most {most_dimensions} dimensions"
        )
    return content, first
