"""How an array of numbers is sent: as a dtype code, a shape and raw bytes.

A small array's bytes are in its descriptor, so a frame of small arrays is just a header; a large
array's bytes are a buffer of the frame, not copied. Pickling an array costs 20 µs, this 1 µs.
Knows NumPy arrays only. Invariant: the shape and dtype of a descriptor account for exactly the
bytes that came, or nothing is built.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from telegrad.errors import ProtocolViolation
from telegrad.rpc.wire.frames import Buffer


class Descriptor(msgspec.Struct, array_like=True, gc=False):
    """An array as received: the code of its dtype, or ``dtype.str`` if it has none.

    `data` is None if the bytes are the frame's next buffer; otherwise it owns its memory, and may
    be written to.
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
"""The codes of the usual dtypes."""
# The names, as NumPy writes them, of dtypes that raw bytes describe in full; others, such as
# structures and Python objects, are pickled. Other spellings are refused: NumPy reads them, but
# crashes on some (M8[s/0]). No dtype here has items of size 0: bytes can't bound their number.
_NAME: Final = re.compile(
    r"[<>|][biufcSU][1-9][0-9]{0,9}"
    r"|[<>][mM]8(\[([1-9][0-9]{0,9})?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?"
)
# The most bytes of one array in a descriptor, and of all of them in a header, which is limited.
_INLINE_BELOW: Final = 16 << 10
_MOST_INLINE: Final = 64 << 10


class _Dtypes(dict[int | str, "np.dtype[Any]"]):
    """The dtypes by their codes; those sent by name are not kept."""

    def __missing__(self, name: int | str) -> "np.dtype[Any]":
        if isinstance(name, str) and _NAME.fullmatch(name):
            return np.dtype(name)
        raise ProtocolViolation(f"expected the dtype of plain numbers, got {name!r:.200}")


_DTYPES: Final = _Dtypes({code: dtype for dtype, code in CODES.items()})


def is_raw(array: "np.ndarray[Any, Any]") -> bool:
    """Say whether raw bytes describe this array in full."""
    dtype = array.dtype
    return dtype in CODES or _NAME.fullmatch(dtype.str) is not None


def describe_all(
    content: Sequence["np.ndarray[Any, Any]"], buffers: list[Buffer]
) -> list[tuple[Any, ...]]:
    """Return the descriptors of all arrays of a message, which are raw; see `Descriptor`.

    The bytes of small arrays are in the descriptors, those of others are appended to `buffers`.
    """
    # Each array gets an equal share of the header's room.
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
    """Return the arrays, and the index of the first buffer from `first` on that is unused."""
    content = []
    for each in descriptors:
        data: Buffer | None = each.data
        try:
            if data is None:
                data = buffers[first]
                first += 1
            # NumPy refuses a shape that needs more than the buffer has, but not one needing less.
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
