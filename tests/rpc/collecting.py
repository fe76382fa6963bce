"""Python's collector, run as often as can be: its finalizers come at any moment."""

import contextlib
import gc
from collections.abc import Callable, Iterator

__all__ = ["MANY", "at_each_collection"]

MANY = 3000
"""More than Python keeps small tuples in stock: making so many makes the collector run."""


@contextlib.contextmanager
def at_each_collection(task: Callable[[], object]) -> Iterator[None]:
    """Run the task whenever the collector has run."""

    def ran(phase: str, _: object) -> None:
        if phase == "stop":
            task()

    before = gc.get_threshold()
    gc.callbacks.append(ran)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(ran)
