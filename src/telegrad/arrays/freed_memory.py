"""Keeping freed memory for the next array, instead of giving it back to the system each time.

A training step frees what the next one needs again. At first, glibc's allocator gives large arrays
back to the system one by one, and gets them again page by page: a page costs as much as two
products over what fits in it, and a step of a small transformer takes 2,272 of them. But it learns:
once an array of some size was freed, it keeps arrays up to that size, and twice that much free
memory. Here it is shown one large array; nothing is written to it, so this costs nothing.

Thresholds that the user has set (``MALLOC_TRIM_THRESHOLD_`` and others) stay in force: then glibc
does not learn. Other allocators are not affected.
"""

import functools

import numpy as np

_LARGEST = 24 << 20
"""Bytes; glibc learns from nothing larger than 32 MiB."""


@functools.cache
def keep_freed_memory() -> None:
    """Have the process keep freed arrays of up to 24 MiB, and up to 48 MiB of free memory."""
    np.empty(_LARGEST, np.uint8)
