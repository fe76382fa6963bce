"""Memory that is freed is kept for the next array, instead of going back to the system each time.

A training step frees what the next one needs again. The allocator of glibc at first gives large
arrays back to the system one by one, and gets them again page by page: a page costs as much as two
products over what fits in it, and a step of a small transformer takes 2,272 of them. It learns by
itself: once an array of some size was freed, it keeps arrays up to that size, and twice that much
of free memory. Here it is shown one large array; nothing is written to it, so it costs nothing.

Where the user has set glibc's thresholds (``MALLOC_TRIM_THRESHOLD_`` and others), that holds: then
it does not learn. Other allocators are not affected.
"""

import functools

import numpy as np

_LARGEST = 24 << 20
"""Bytes; glibc learns from nothing larger than 32 MiB."""


@functools.cache
def keep_freed_memory() -> None:
    """Make arrays of up to 24 MiB, and up to 48 MiB of free memory, stay with the process."""
    np.empty(_LARGEST, np.uint8)
