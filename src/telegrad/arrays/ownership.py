"""Who else refers to a value: what the reference count says when nobody does.

Measured once, since interpreters differ in what they count for a local variable.

Where threads run side by side, without the interpreter's lock, a count tells less. Of a value that
only the current thread can reach it is still right: nobody comes to it who was not there before.
But what a Tensor shows to all threads, one of them may take up just after the count was read.
"""

import sys
from sys import getrefcount

__all__ = ["ALONE", "HELD", "IS_LOCKED", "SHOWN"]


def _count_alone() -> int:
    held = {0: object()}
    value = held.pop(0)
    return getrefcount(value)


def _count_held() -> int:
    holder = [object()]
    value = holder[0]
    return getrefcount(value)


IS_LOCKED: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether the interpreter's lock lets one thread run at a time."""
ALONE = _count_alone()
"""References to a value that one local variable knows, and nobody else."""
HELD = _count_held()
"""References to a value that one local variable and one holder know, which is this thread's own."""
SHOWN = HELD if IS_LOCKED else 0
"""The same of a holder that others may look at: no count is as low where they may do so now."""
