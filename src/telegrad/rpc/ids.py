"""New 64-bit ids of one worker: for contexts, passes, messages, references and dual levels.

The high 16 bits are the worker's id, the rest is a counter. A strict worker does not trust the
other members of its cluster: they may reach only what they were given. So it encrypts the counter
by a Feistel network of four rounds with a secret key, which maps it to another number of 48 bits.
All ids stay distinct, and none can be inferred from others. A guess hits one of n ids in use with
probability n / 2⁴⁸, and each guess takes a message.
"""

import itertools
import secrets
from collections.abc import Callable
from hashlib import blake2s
from typing import Final

from telegrad.rpc.names import COUNTER_BITS, WorkerInfo, first_id

_ROUNDS: Final = 4
_HALF: Final = COUNTER_BITS // 2
_LOW: Final = (1 << _HALF) - 1
_COUNTER: Final = (1 << COUNTER_BITS) - 1


def id_source(maker: WorkerInfo, *, secret: bool) -> Callable[[], int]:
    """Return a function that returns a new id at each call; `secret` ones can't be guessed."""
    count = itertools.count(first_id(maker)).__next__
    if not secret:
        return count
    key = secrets.token_bytes(32)
    maker_bits = maker.id << COUNTER_BITS
    return lambda: maker_bits | _encrypted(count() & _COUNTER, key)


def _encrypted(number: int, key: bytes) -> int:
    left, right = number >> _HALF, number & _LOW
    for step in range(_ROUNDS):
        text = bytes((step,)) + right.to_bytes(3, "big")
        mixed = int.from_bytes(blake2s(text, key=key, digest_size=3).digest(), "big")
        left, right = right, left ^ mixed
    return left << _HALF | right
