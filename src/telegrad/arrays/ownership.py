"""Who else refers to a value: what the reference count says when nobody does.

Measured once, since interpreters differ in what they count for a local variable.
"""

from sys import getrefcount

__all__ = ["ALONE", "HELD"]


def _count_alone() -> int:
    held = {0: object()}
    value = held.pop(0)
    return getrefcount(value)


def _count_held() -> int:
    holder = [object()]
    value = holder[0]
    return getrefcount(value)


ALONE = _count_alone()
"""References to a value that one local variable knows, and nobody else."""
HELD = _count_held()
"""References to a value that one local variable and one other holder know."""
