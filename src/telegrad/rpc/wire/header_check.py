"""A strict worker's check of a header before decoding it: its cost must be in line with its size.

A header is msgpack, decoded at once. One byte of it may become an empty map of 80 bytes, and keys
that were made to share one hash take time in the square of their number to tell apart. A worker
that takes pickles trusts its peers with more than that; a strict one does not.

Invariant: a header that passes takes at most ``MOST_DECODED`` bytes, and linear time.
"""

import struct
from collections.abc import Collection
from typing import Any, Final

from telegrad.errors import ProtocolViolation

MOST_DECODED: Final = 256 << 20
"""The most bytes that a decoded header may take."""
_SMALL: Final = 4096  # A header of at most so many bytes can do no harm.
_OF_CONTAINER: Final = 80  # Bytes of an empty list or dict, and of the pointer to it.
_OF_BYTE: Final = 24  # Bytes that any other byte may become: a short text takes 50 for its three.
_NO_CONTAINERS: Final = bytes(
    byte for byte in range(256) if not (0x80 <= byte <= 0x9F or 0xDC <= byte <= 0xDF)
)
_MOST_ITEMS: Final = 2_000_000  # Checked one by one, where a large map may be among them.
_MOST_EQUAL: Final = 64  # Keys that share a hash; honest data has hardly two.

# By the first byte of an item: how many bytes follow; how the length is written, and how many more
# bytes follow besides; how the count of a container's entries is written, and the items of each.
_FIXED: Final = {
    **dict.fromkeys((0xC0, 0xC2, 0xC3), 0),
    0xCA: 4,
    0xCB: 8,
    0xCC: 1,
    0xCD: 2,
    0xCE: 4,
    0xCF: 8,
    0xD0: 1,
    0xD1: 2,
    0xD2: 4,
    0xD3: 8,
    0xD4: 2,
    0xD5: 3,
    0xD6: 5,
    0xD7: 9,
    0xD8: 17,
}
_BYTE, _SHORT, _LONG = struct.Struct(">B"), struct.Struct(">H"), struct.Struct(">I")
_COUNTED: Final = {
    0xC4: (_BYTE, 0),
    0xC5: (_SHORT, 0),
    0xC6: (_LONG, 0),
    0xC7: (_BYTE, 1),
    0xC8: (_SHORT, 1),
    0xC9: (_LONG, 1),
    0xD9: (_BYTE, 0),
    0xDA: (_SHORT, 0),
    0xDB: (_LONG, 0),
}
_MAPS: Final = (0xDE, 0xDF)
_CONTAINERS: Final = {
    0xDC: (_SHORT, 1),
    0xDD: (_LONG, 1),
    0xDE: (_SHORT, 2),
    0xDF: (_LONG, 2),
}


def most_decoded(size: int) -> int:
    """Return how many bytes a header of that size may take once decoded, if it passes."""
    return min(MOST_DECODED, size * (_OF_CONTAINER + _OF_BYTE))


def check_header(header: bytes | bytearray) -> None:
    """Raise ProtocolViolation for a header that is expensive to decode."""
    size = len(header)
    if size <= _SMALL:
        return
    # An upper bound: bytes inside texts count as well.
    containers = len(header.translate(None, _NO_CONTAINERS))
    cost = containers * _OF_CONTAINER + size * _OF_BYTE
    if cost > MOST_DECODED:
        raise ProtocolViolation(
            f"expected a header that takes at most {MOST_DECODED} bytes once decoded, got one of "
            f"{size} bytes that may take {cost}: send large data as arrays"
        )
    if b"\xde" in header or b"\xdf" in header:
        try:
            _check_maps(header)
        except (IndexError, struct.error) as error:
            raise ProtocolViolation(f"a malformed header came: {error}") from error


def _check_maps(data: bytes | bytearray) -> None:
    """Raise unless the keys of each large map are texts, whose hashes can't be predicted."""
    at = 0
    # The items left in the current container, and whether it is a large map: in that every
    # second item, with an even number of items left, is a key.
    left, is_map = 1, False
    outer: list[tuple[int, bool]] = []
    for _ in range(_MOST_ITEMS):
        while not left:
            if not outer:
                return
            left, is_map = outer.pop()
        first = data[at]
        at += 1
        if is_map and not left % 2 and not _is_text(first):
            raise ProtocolViolation("expected texts as the keys of a large map in a header")
        left -= 1
        count = -1
        if first < 0x80 or first >= 0xE0:
            continue
        if first <= 0x8F:
            count = 2 * (first & 0xF)
        elif first <= 0x9F:
            count = first & 0xF
        elif first <= 0xBF:
            at += first & 0x1F
        elif first in _FIXED:
            at += _FIXED[first]
        elif first in _COUNTED:
            form, beside = _COUNTED[first]
            at += form.size + form.unpack_from(data, at)[0] + beside
        elif first in _CONTAINERS:
            form, each = _CONTAINERS[first]
            count = each * form.unpack_from(data, at)[0]
            at += form.size
        else:
            raise ProtocolViolation(f"expected msgpack, got an item that begins with {first}")
        if count > 0:
            outer.append((left, is_map))
            left, is_map = count, first in _MAPS
    raise ProtocolViolation(
        f"expected a header of at most {_MOST_ITEMS} items, got more: send large data as arrays"
    )


def _is_text(first: int) -> bool:
    return 0xA0 <= first <= 0xBF or 0xD9 <= first <= 0xDB


def check_keys(keys: Collection[Any]) -> None:
    """Raise ProtocolViolation if many keys of one set or dict share a hash."""
    if len(keys) > _MOST_EQUAL and len(keys) - len({hash(key) for key in keys}) > _MOST_EQUAL:
        raise ProtocolViolation(
            f"expected keys with hashes of their own, got {len(keys)} of which many share one"
        )
