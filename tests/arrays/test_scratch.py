"""Scratch memory: kept by name and thread, grown when needed, not hoarded."""

import threading
from typing import Any

import numpy as np

from telegrad.arrays.scratch import _LARGEST, scratch

FLOAT = np.dtype("float64")


def test_the_same_memory_is_lent_again() -> None:
    first = scratch("again", 100, FLOAT)
    assert np.shares_memory(first, scratch("again", 50, FLOAT))
    assert scratch("again", 50, FLOAT).shape == (50,)


def test_names_dtypes_and_sizes_are_kept_apart() -> None:
    first = scratch("apart", 10, FLOAT)
    assert not np.shares_memory(first, scratch("other", 10, FLOAT))
    assert not np.shares_memory(first, scratch("apart", 10, np.dtype("float32")))
    assert scratch("apart", 20, FLOAT).size == 20


def test_threads_have_their_own() -> None:
    here = scratch("thread", 10, FLOAT)
    there: list[Any] = []
    thread = threading.Thread(target=lambda: there.append(scratch("thread", 10, FLOAT)))
    thread.start()
    thread.join()
    assert not np.shares_memory(here, there[0])


def test_large_memory_is_not_kept() -> None:
    size = _LARGEST // FLOAT.itemsize + 1
    assert not np.shares_memory(scratch("large", size, FLOAT), scratch("large", size, FLOAT))
